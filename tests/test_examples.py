"""Every example runs as a user runs it, and writes only where it is told to."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
WRITES = {
    "01_encode.py": set(),
    "02_parts.py": {"parts.ply", "surfaces.ply"},
    "03_align.py": set(),
    "04_search.py": {"shapes.lance", "hits.png"},
    "05_train_your_own.py": {"my_run"},
    "06_transfer.py": {"labelled", "labelled.png"},
    "07_track.py": set(),
    "08_locate.py": set(),
    "09_scene.py": set(),
}
SAYS = {
    "01_encode.py": "after a random rotation",
    "02_parts.py": "decoded surfaces",
    "03_align.py": "ambiguous: False",
    "04_search.py": "guitar",
    "05_train_your_own.py": "a chair's feature",
    "06_transfer.py": "labelled right",
    "07_track.py": "parts visible",
    "08_locate.py": "found",
    "09_scene.py": "objects found",
}


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(WRITES) == set(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WRITES))
def test_example(name, tmp_path):
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / name), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == WRITES[name]
