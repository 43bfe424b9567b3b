"""The table of `docs/architecture.md`, enforced: data goes one way, and each room imports only what it may."""

import ast
import subprocess
import sys
from pathlib import Path

import geocaps

ROOT = Path(geocaps.__file__).parent

MAY_IMPORT = {
    "errors": set(),
    "se3": {"errors"},
    "points": {"se3", "errors"},
    "datasets": {"points"},
    "model": {"se3", "errors", "points.frames", "points.sampling"},
    "training": {"se3", "errors", "points", "model"},
    "apps": {"se3", "errors", "points", "model", "training.checkpoint"},
    "bench": {"se3", "errors", "points", "model", "apps"},
    "evaluation": {"se3", "errors", "points", "model", "training", "apps", "datasets"},
    "viewer": {"se3", "errors", "points", "model", "apps", "datasets"},
    "cli": {"se3", "errors", "points", "model", "training", "apps", "bench", "evaluation", "viewer", "datasets"},
    "__init__": {"apps", "errors", "se3", "datasets"},
    "__main__": {"cli"},
}


def imports(path: Path) -> set[str]:
    """The modules of geocaps that a file imports anywhere, as dotted names without the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "geocaps":
            base = node.module.removeprefix("geocaps").lstrip(".")
            found |= {base} if base else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("geocaps.") for a in node.names if a.name.startswith("geocaps.")}
    return found


def test_every_room_imports_only_what_it_may():
    files = list(ROOT.rglob("*.py"))
    assert len(files) > 20
    for path in files:
        relative = path.relative_to(ROOT)
        room = relative.parts[0].removesuffix(".py")
        allowed = MAY_IMPORT[room] | {room}
        for name in imports(path):
            assert any(name == one or name.startswith(one + ".") for one in allowed), (
                f"{relative} imports geocaps.{name}, but {room} may only import {sorted(allowed)}"
            )


def test_no_module_is_over_400_lines():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path


def test_importing_geocaps_imports_nothing_heavy():
    code = (
        "import sys, geocaps\n"
        "heavy = {'torch', 'matplotlib', 'viser', 'tyro', 'geocaps.cli', 'trimesh'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from geocaps import load\n"
        "heavy = {'matplotlib', 'viser', 'tyro', 'geocaps.cli', 'geocaps.evaluation'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_exist():
    for name in geocaps.__all__:
        assert getattr(geocaps, name) is not None
    assert not hasattr(geocaps, "no_such_name")
