"""What the documents say is true: commands parse and run, Python blocks run, links lead somewhere, tests exist."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geocaps import cli
from geocaps.points.io import save_points
from geocaps.points.synthetic import make_shape

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
ELSEWHERE = {"demo", "bench", "train", "eval", "export", "data download", "view"}
"""Verbs that take minutes, serve until stopped or use the network: run by the tests of their own, parsed here."""
COMMAND_WORDS = ("geocaps ", "python ", "python3 ", "bash ", "pip ", "torchrun ", ".venv/")


def named(path):
    return str(path.relative_to(ROOT))


def blocks(page):
    """Language and lines of each fenced block."""
    text = page.read_text(encoding="utf-8")
    return [(m[1], m[2].splitlines()) for m in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)]


def commands(page):
    """Every command of the shell blocks; blocks without a language hold pictures too."""
    found = []
    for language, lines in blocks(page):
        if language not in ("", "bash"):
            continue
        for line in lines:
            if line.startswith(COMMAND_WORDS):
                found += [part.strip() for part in line.split("&&")]
            else:
                assert language == "" or not line.strip() or line.startswith("#"), f"{named(page)}: what is {line!r}?"
    return found


def spans(page):
    """Commands within the prose, such as `geocaps info`; synopses with several verbs are left out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return [span for span in re.findall(r"`(geocaps [^`]+)`", " ".join(text.split())) if "|" not in span]


def words(command):
    """The words after ``geocaps``, options of a synopsis ([--json]) taken as given; None for another program."""
    line = re.sub(r"[\[\]](?!')", " ", command) if "[--" in command or "[NAME]" in command else command
    line = re.sub(r"(--\w+) N\b", r"\1 2", line)
    parts = shlex.split(line, comments=True)
    for at, part in enumerate(parts):
        if part == "geocaps" or part.endswith("/geocaps"):
            return parts[at + 1 :]
    return None


def verbs():
    for name, verb in cli.commands().items():
        if isinstance(verb, dict):
            yield from (f"{name} {inner}" for inner in verb)
        else:
            yield name


def groups():
    return [name for name, verb in cli.commands().items() if isinstance(verb, dict)]


@pytest.fixture
def parse(monkeypatch):
    """The real parser on the real signatures; what is parsed is noted, not done."""
    called = []

    def noting(name, verb):
        @functools.wraps(verb)
        def note(*args, **options):
            called.append(name)

        return note

    def replaced(tree, above=""):
        return {
            name: replaced(verb, f"{name} ") if isinstance(verb, dict) else noting(above + name, verb)
            for name, verb in tree.items()
        }

    tree = replaced(cli.commands())
    monkeypatch.setattr(cli, "commands", lambda: tree)

    def parsed(args):
        called.clear()
        try:
            assert cli.run(args) == 0
        except SystemExit as stop:
            pytest.fail(f"geocaps {shlex.join(args)} does not parse (exit code {stop.code})")
        (name,) = called
        return name

    return parsed


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_parses(page, parse):
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", declared.partition("[project.optional-dependencies]")[2], re.M)
    for command in commands(page):
        args = words(command)
        if args is not None:
            parse(args)
            continue
        program, *rest = shlex.split(command, comments=True)
        if Path(program).name == "pip":
            for wanted in re.findall(r"\[([\w,]+)\]", command):
                assert set(wanted.split(",")) <= set(extras), command
        elif rest[:2] != ["-m", "venv"]:
            assert program in ("python", "bash"), f"teach this test what {command!r} is"
            assert (ROOT / rest[0]).is_file(), command


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_in_the_prose_has_a_verb_and_its_options(page, parse):
    known, above = set(verbs()), groups()
    for span in spans(page):
        args = words(span)
        if args[0] in ("COMMAND", "--help") or args in [[name] for name in above]:
            continue
        verb = " ".join(args[:2]) if args[0] in above else args[0]
        assert verb in known, f"{named(page)}: {span}"
        options = [word for word in args if word.startswith("--")]
        if options and len(args) > len(verb.split()):
            text = shlex.join(help_text(verb).split())
            assert all(option in text for option in options), f"{named(page)}: {span}"


@functools.cache
def help_text(verb):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as stop:
        cli.run([*verb.split(), "--help"])
    assert stop.value.code == 0
    return out.getvalue()


def test_the_help_names_every_verb(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = help_text("")
    assert all(f"• {name} " in text for name in cli.commands())


@pytest.mark.parametrize("verb", groups())
def test_the_help_of_a_group_names_its_verbs(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert all(f"• {name} " in help_text(verb) for name in cli.commands()[verb])


@pytest.mark.parametrize("verb", list(verbs()))
def test_no_help_page_calls_what_is_left_out_none(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert not re.search(r"default: (None)?\)|{None", help_text.__wrapped__(verb))


@pytest.mark.parametrize("verb", list(verbs()))
def test_every_help_page_has_examples_that_parse(verb, monkeypatch, parse):
    monkeypatch.setenv("COLUMNS", "200")
    text = help_text(verb)
    assert "--json" in text
    _, _, after = text.partition("Example:")
    paragraph = after.split("\n\n")[0]
    examples = [one.strip() for line in paragraph.splitlines() for one in line.split("   or   ") if one.strip()]
    assert examples, f"geocaps {verb} --help has no Example"
    for example in examples:
        assert parse(words(example)) == verb


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "CHANGELOG.md"])
def test_every_verb_is_written_about(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = [name for name in cli.commands() if not re.search(rf"geocaps {name}\b", text)]
    assert missing == []


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the documents speak of."""
    folder = tmp_path_factory.mktemp("files")

    def write(name, shape, seed):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        points = make_shape(shape, seed).sample(1100, torch.Generator().manual_seed(seed)).points
        save_points(path, points.numpy())

    for name, shape, seed in (
        ("chair.ply", "chair", 0),
        ("other_chair.ply", "chair", 0),
        ("meshes/chair/a.ply", "chair", 1),
        ("meshes/table/b.ply", "table", 2),
        ("my_meshes/chair/train/a.ply", "chair", 3),
        ("my_meshes/chair/test/b.ply", "chair", 4),
    ):
        write(name, shape, seed)
    return folder


@pytest.fixture
def place(files, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_the_quick_start_runs(place, capsys):
    """In its order, in one folder; what takes minutes is run by the tests of that verb."""
    before = {path.name for path in place.iterdir()}
    for command in commands(ROOT / "docs" / "quickstart.md"):
        args = words(command)
        if args is None or any(shlex.join(args).startswith(verb) for verb in ELSEWHERE):
            continue
        assert cli.run(args) == 0, (command, capsys.readouterr().err)
    made = {path.name for path in place.iterdir()} - before
    assert made == {
        "chair_on_other.ply",
        "chair_parts.ply",
        "chair_parts.png",
        "canonical",
        "canonical.png",
        "capsules.npz",
        "shapes.lance",
        "meshes.npz",
    }


def test_the_quick_start_has_every_verb(parse):
    shown = {parse(words(command)) for command in commands(ROOT / "docs" / "quickstart.md") if words(command)}
    assert shown == set(verbs())


PYTHON = [
    pytest.param(page, number, id=f"{named(page)} {number}")
    for page in PAGES
    for number, (language, _) in enumerate(blocks(page))
    if language == "python"
]


@pytest.mark.parametrize(("page", "number"), PYTHON)
def test_python_runs(page, number, place):
    code = "\n".join(blocks(page)[number][1])
    tree = ast.parse(code, filename=named(page))
    if named(page) == "docs/training.md":
        # Five minutes of training: here the same call, without the training.
        (call,) = [node for node in tree.body if isinstance(node, ast.Expr)]
        call.value = call.value.args[0]
        ast.fix_missing_locations(tree)
    space = {"generator": torch.Generator().manual_seed(0)}
    exec(compile(tree, named(page), "exec"), space)


@pytest.mark.slow
def test_the_pictures_of_the_concepts_are_made_by_the_code(tmp_path):
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_images.py"), str(tmp_path)], check=True, timeout=300)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == set(re.findall(r"\(images/([^)]+)\)", text))
    for name in made:
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"


# ── links, and the tests that docs/security.md names ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=named)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{named(page)}: {target}"


def test_every_page_can_be_found_from_the_readme():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    lost = [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name}" not in text.replace("docs/", "")]
    assert lost == []


@functools.cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def threats():
    """The rows of the tables of docs/security.md: threat, what is done, tests."""
    lines = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in rows if row[0] != "threat" and not set(row[0]) <= set("-: ")]


@pytest.mark.parametrize("row", threats(), ids=lambda row: row[0][:50])
def test_every_threat_names_tests_that_exist(row):
    assert len(row) == 3
    tests = re.findall(r"`([^`]+)`", row[2])
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        assert function.startswith("test_"), test
        assert function in functions(f"tests/{path}"), test
