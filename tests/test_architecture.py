"""The table of `docs/architecture.md`, enforced: data goes one way, and each room imports only what it may."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import geocaps

ROOT = Path(geocaps.__file__).parent
NAME = re.compile(r"`([\w.]+)`")
DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"


def table() -> dict[str, tuple[set[str], set[str]]]:
    """Room → the names its row mentions, and what it may import."""
    rows = [line.split("|")[1:-1] for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    return {NAME.findall(room)[0]: (set(NAME.findall(inside)), set(NAME.findall(may))) for room, inside, may in rows}


def modules(folder: Path) -> set[str]:
    """Modules and packages directly in a folder."""
    files = {path.stem for path in folder.glob("*.py")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


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


def test_the_document_names_every_module_and_no_other():
    rooms = table()
    assert set(rooms) == modules(ROOT)
    for room, (named, _) in rooms.items():
        if (ROOT / room).is_dir():
            assert named == modules(ROOT / room) - {"__init__"}, room


def test_every_room_imports_only_what_it_may():
    rooms = table()
    files = list(ROOT.rglob("*.py"))
    assert len(files) > 20
    for path in files:
        relative = path.relative_to(ROOT)
        room = relative.parts[0].removesuffix(".py")
        allowed = rooms[room][1] | {room}
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


def test_the_package_says_that_it_is_typed_and_all_is_every_extra_for_users():
    assert (ROOT / "py.typed").is_file()
    declared = (ROOT.parents[1] / "pyproject.toml").read_text()
    assert 'packages = ["src/geocaps"]' in declared  # the folder as it is: py.typed goes into the wheel with it
    extras = declared.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    names = set(re.findall(r"^(\w+) = \[", extras, re.M)) - {"all", "test", "baselines", "docs"}
    (everything,) = re.findall(r'^all = \["geocaps\[([\w,]+)\]"\]$', extras, re.M)
    assert set(everything.split(",")) == names
