"""The documentation site builds strictly, loads nothing from the network, and its links lead somewhere."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]


class Links(HTMLParser):
    """What a page loads, where it leads, and the places in it that may be led to."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.leads, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if "id" in named:
            self.places.add(named["id"])
        if tag == "link" and named.get("rel") != "canonical":
            self.loaded.append(named.get("href", ""))
        elif tag in ("script", "img", "iframe"):
            self.loaded.append(named.get("src") or "")
        elif tag == "a" and named.get("href"):
            self.leads.append(named["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path: Links(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}, folder


@pytest.mark.slow
def test_every_document_is_a_page(site):
    pages, folder = site
    names = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"} | {"api", "commands", "tour"}
    assert {str(path.relative_to(folder).parent) for path in pages if path.name == "index.html"} == names | {"."}


@pytest.mark.slow
def test_nothing_is_loaded_from_the_network(site):
    for path, page in site[0].items():
        assert [one for one in page.loaded if urlsplit(one).netloc] == [], path


@pytest.mark.slow
def test_links_lead_to_pages_and_places(site):
    pages, folder = site
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for lead in page.leads:
            to = urlsplit(lead)
            if to.scheme or to.netloc:
                continue
            target = path if not to.path else (path.parent / unquote(to.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.relative_to(folder)}: {lead}"
            if to.fragment and target in pages:
                assert unquote(to.fragment) in pages[target].places, f"{path.relative_to(folder)}: {lead}"


@pytest.mark.slow
def test_the_reference_has_every_public_name(site):
    import geocaps

    (api,) = [page for path, page in site[0].items() if path.parent.name == "api"]
    missing = [name for name in geocaps.__all__ if not any(one.endswith(f".{name}") for one in api.places)]
    assert missing == []
