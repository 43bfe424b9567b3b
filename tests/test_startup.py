"""What is not imported where it is not needed, each in a fresh process; and what the package shows of itself."""

import json
import pydoc
import re
import subprocess
import sys

import numpy as np
import pytest

import geocaps
from geocaps import cli
from geocaps.io import save_points

HEAVY = (
    "torch", "scipy", "matplotlib", "trimesh", "h5py", "pandas", "pyarrow", "lancedb", "ray", "viser", "PIL", "sympy",
    "laspy", "onnx", "safetensors", "rich.live", "rich.progress", "multiprocessing", "jaxtyping", "numpy",
)  # fmt: skip
NUMERIC = {"numpy", "jaxtyping", "scipy"}


def fresh(code: str, *args: str) -> list[str]:
    """Runs code in a new process and returns which of the heavy modules it left imported."""
    report = f"\nimport json, sys\nsys.stderr.write(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code + report, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr)


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clouds")
    points = np.random.default_rng(0).normal(size=(300, 3)) * [1, 0.5, 0.2]
    for name in ("a", "b"):
        for suffix in (".ply", ".xyz", ".pcd", ".npy", ".npz"):
            save_points(folder / f"{name}{suffix}", points)
    return folder


def test_importing_geocaps_imports_nothing_heavy():
    assert fresh("import geocaps; dir(geocaps)") == []
    assert fresh("import geocaps; geocaps.Similarity.identity()") == ["jaxtyping", "numpy"]


@pytest.mark.parametrize("suffix", [".ply", ".xyz", ".pcd", ".npy", ".npz"])
def test_aligning_needs_numbers_alone(clouds, suffix):
    code = "import sys, geocaps; geocaps.align(sys.argv[1], sys.argv[2]).inverse().apply(sys.argv[1])"
    loaded = fresh(code, str(clouds / f"a{suffix}"), str(clouds / f"b{suffix}"))
    assert set(loaded) == NUMERIC


def test_locating_needs_numbers_alone(clouds):
    code = "import sys, geocaps; geocaps.locate(sys.argv[1], sys.argv[2])"
    assert set(fresh(code, str(clouds / "a.ply"), str(clouds / "b.ply"))) == NUMERIC


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_align_needs_numbers_alone(clouds, tmp_path, options):
    code = "import sys; from geocaps.cli import run; assert run(sys.argv[1:]) == 0; assert 'rich' not in sys.modules"
    args = ["align", str(clouds / "a.ply"), str(clouds / "b.ply"), "--out", str(tmp_path / "out.ply"), *options]
    assert set(fresh(code, *args)) == NUMERIC


def test_info_needs_no_torch(clouds):
    code = "import sys; from geocaps.cli import run; assert run(sys.argv[1:]) == 0"
    for args in (["info"], ["info", "--json"], ["info", str(clouds / "a.ply")]):
        assert set(fresh(code, *args)) <= NUMERIC


def test_encoding_a_file_needs_no_compiler_and_no_reader_of_other_formats(clouds, tmp_path):
    code = (
        "import sys; from geocaps.cli import run; assert run(sys.argv[1:]) == 0\n"
        "found = {'torch._dynamo', 'torch._inductor', 'sympy', 'matplotlib', 'trimesh', 'h5py'} & set(sys.modules)\n"
        "assert not found, found"
    )
    assert "torch" in fresh(code, "encode", str(clouds / "a.ply"), "--out", str(tmp_path / "out.npz"))


def leaves(commands, above=()):
    for name, command in commands.items():
        if isinstance(command, dict):
            yield [*above, name], None
            yield from leaves(command, (*above, name))
        else:
            yield [*above, name], command


def test_no_help_page_imports_anything_heavy():
    """One process for all of them: what one page imported would be seen at the next."""
    pages = [[], *(names for names, _ in leaves(cli.COMMANDS))]
    assert len(pages) > 15
    code = (
        "import json, sys\n"
        "from geocaps.cli import run\n"
        "for names in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        run([*names, '--help'])\n"
        "    except SystemExit as stop:\n"
        "        assert stop.code == 0, names\n"
        f"    found = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "    assert not found, (names, found)\n"
    )
    assert fresh(code, json.dumps(pages)) == []


def test_every_command_has_a_sentence_for_the_list():
    for names, command in leaves(cli.COMMANDS):
        assert command is None or re.fullmatch(r"[A-Z].{20,}\.", command.summary()), names


def test_the_version_is_printed(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"geocaps {geocaps.__version__}\n"


# ── the public face ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_completion_shows_the_public_names():
    assert set(geocaps.__all__) <= set(dir(geocaps))
    assert {"__version__", "__doc__"} <= set(dir(geocaps))
    assert not {"importlib", "TYPE_CHECKING", "annotations"} & set(dir(geocaps))
    assert {name for names in geocaps._WHERE.values() for name in names} | {"datasets"} == set(geocaps.__all__)


def test_help_explains_the_public_names():
    text = pydoc.plain(pydoc.render_doc(geocaps))
    for name in geocaps.__all__:
        assert name in text
    assert "align(a" in text
    assert "class Similarity" in text
    assert "class Alignment" in text
