"""The wheel is built, and works where the source is not."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USED = """
import geocaps, sys
assert geocaps.__file__.startswith(sys.argv[1]), geocaps.__file__
furniture = geocaps.datasets.load("furniture")
capsule = geocaps.load().encode(furniture.points(0))
print(len(furniture), len(capsule.parts), capsule.confidence > 0)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation nothing is downloaded: the build back end is among the tests' own packages.
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("geocaps-*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_notices(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "geocaps").rglob("*.py")}
    assert sources <= set(names)
    assert {"geocaps/weights/default/model.safetensors", "geocaps/weights/default/card.md"} <= set(names)
    assert {"geocaps/data/furniture.npz", "geocaps/data/CREDITS.md", "geocaps/viewer/page.html"} <= set(names)
    assert "geocaps/py.typed" in names
    assert {"LICENSE", "THIRD_PARTY.md"} <= {Path(name).name for name in names}
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


@pytest.mark.slow
def test_the_installed_wheel_works_away_from_the_source(wheel, tmp_path):
    place, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place)]
    subprocess.run([*install, str(wheel)], check=True, timeout=300)
    space = {**os.environ, "PYTHONPATH": str(place)}

    def run(*command):
        done = subprocess.run(command, cwd=elsewhere, env=space, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(sys.executable, "-c", USED, str(place)).split() == ["175", "32", "True"]
    assert "geocaps" in run(sys.executable, "-m", "geocaps", "info")
    assert list(elsewhere.iterdir()) == []
