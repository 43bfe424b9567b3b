"""What the documents say is true: commands parse and run, Python blocks run, links lead somewhere, tests exist, figures
agree with each other and with the code that they come from."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from geocaps import cli
from geocaps.data.scenes import compose
from geocaps.data.synthetic import make_shape
from geocaps.errors import MissingExtraError, install_hint
from geocaps.evaluation.table1 import SETTINGS, configuration, first_layer_configuration
from geocaps.io import save_points
from geocaps.training import preset
from geocaps.training.loop import learning_rate

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
ELSEWHERE = {"demo", "bench", "train", "eval", "export", "data download", "view"}
"""Commands that take minutes, serve until stopped or use the network: run by their own tests, parsed here."""
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
    """Commands within the prose, such as `geocaps info`; synopses with several commands are left out."""
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


def extras():
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = declared.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = \[", section, re.M))


def all_commands():
    found = {}
    for name, command in cli.COMMANDS.items():
        if isinstance(command, dict):
            found |= {f"{name} {inner}": one for inner, one in command.items()}
        else:
            found[name] = command
    return found


def groups():
    return [name for name, command in cli.COMMANDS.items() if isinstance(command, dict)]


@pytest.fixture
def parse(monkeypatch):
    """The real parser on the real signatures; what is parsed is noted, not done."""
    called = []

    load, name_of = cli.Command.load, {command: name for name, command in all_commands().items()}

    def noting(command):
        @functools.wraps(load(command))
        def note(*args, **options):
            called.append(name_of[command])

        return note

    monkeypatch.setattr(cli.Command, "load", noting)

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
    for command in commands(page):
        args = words(command)
        if args is not None:
            parse(args)
            continue
        program, *rest = shlex.split(command, comments=True)
        if Path(program).name == "pip":
            for wanted in re.findall(r"\[([\w,]+)\]", command):
                assert set(wanted.split(",")) <= extras(), command
        elif rest[:2] != ["-m", "venv"]:
            assert program in ("python", "bash"), f"teach this test what {command!r} is"
            assert (ROOT / rest[0]).is_file(), command


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_in_the_prose_exists_with_its_options(page, parse):
    known, above = set(all_commands()), groups()
    for span in spans(page):
        args = words(span)
        if args[0] in ("COMMAND", "--help") or args in [[name] for name in above]:
            continue
        command = " ".join(args[:2]) if args[0] in above else args[0]
        assert command in known, f"{named(page)}: {span}"
        options = [word for word in args if word.startswith("--")]
        if options and len(args) > len(command.split()):
            text = shlex.join(help_text(command).split())
            assert all(option in text for option in options), f"{named(page)}: {span}"


@functools.cache
def help_text(command):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as stop:
        cli.run([*command.split(), "--help"])
    assert stop.value.code == 0
    return out.getvalue()


def test_the_help_names_every_command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = help_text("")
    assert all(f"• {name} " in text for name in cli.COMMANDS)


@pytest.mark.parametrize("command", groups())
def test_the_help_of_a_group_names_its_commands(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert all(f"• {name} " in help_text(command) for name in cli.COMMANDS[command])


@pytest.mark.parametrize("command", list(all_commands()))
def test_no_help_page_calls_what_is_left_out_none(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert not re.search(r"default: (None)?\)|{None", help_text.__wrapped__(command))


@pytest.mark.parametrize("command", list(all_commands()))
def test_every_help_page_has_examples_that_parse(command, monkeypatch, parse):
    monkeypatch.setenv("COLUMNS", "200")
    text = help_text(command)
    assert "--json" in text
    _, _, after = text.partition("Example:")
    paragraph = after.split("\n\n")[0]
    examples = [one.strip() for line in paragraph.splitlines() for one in line.split("   or   ") if one.strip()]
    assert examples, f"geocaps {command} --help has no Example"
    for example in examples:
        assert parse(words(example)) == command


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "CHANGELOG.md"])
def test_every_verb_is_written_about(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = [name for name in cli.COMMANDS if not re.search(rf"geocaps {name}\b", text)]
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
        ("frames/0.ply", "chair", 0),
        ("frames/1.ply", "chair", 0),
    ):
        write(name, shape, seed)
    chair = make_shape("chair", 0)
    room = compose([chair, make_shape("car", 1)], torch.Generator().manual_seed(0), points=4000, sizes={id(chair): 1.0})
    save_points(folder / "room.pcd", room.points)
    return folder


@pytest.fixture
def place(files, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_the_quick_start_runs(place, capsys):
    """In its order, in one folder; what takes minutes is run by the tests of that command."""
    before = {path.name for path in place.iterdir()}
    for command in commands(ROOT / "docs" / "quickstart.md"):
        args = words(command)
        if args is None or any(shlex.join(args).startswith(command) for command in ELSEWHERE):
            continue
        assert cli.run(args) == 0, (command, capsys.readouterr().err)
    made = {path.name for path in place.iterdir()} - before
    assert made == {
        "chair_on_other.ply",
        "chair_parts.ply",
        "chair_whole.ply",
        "chair_parts.png",
        "canonical",
        "canonical.png",
        "capsules.npz",
        "labelled",
        "shapes.lance",
        "meshes.npz",
        "poses.jsonl",
        "finds.json",
        "scene",
    }


def test_the_quick_start_has_every_command(parse):
    shown = {parse(words(command)) for command in commands(ROOT / "docs" / "quickstart.md") if words(command)}
    assert shown == set(all_commands())


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


def test_every_python_block_is_marked_and_run():
    """A block without a language that is Python would be run by no test."""
    for page in PAGES:
        assert {language for language, _ in blocks(page)} <= {"", "bash", "python"}, named(page)
        for language, lines in blocks(page):
            code = [line for line in lines if re.match(r"(import|from) \w+", line)]
            assert language == "python" or not code, f"{named(page)}: {code}"
    assert {named(page) for page, _ in (param.values for param in PYTHON)} >= {
        "README.md",
        "docs/quickstart.md",
        "docs/apps.md",
        "docs/data.md",
        "docs/training.md",
    }


def test_the_readmes_ten_lines_run_when_pasted_into_a_python_in_an_empty_folder(tmp_path):
    (lines,) = (lines for language, lines in blocks(ROOT / "README.md") if language == "python")
    assert len([line for line in lines if line.strip()]) == 10
    check = "import json; print('FOUND', json.dumps([result.matrix.tolist(), capsule.pose.matrix().shape]))"
    pasted = "\n".join([*lines, check, ""])
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=pasted, capture_output=True, text=True, timeout=500, cwd=tmp_path
    )
    assert done.returncode == 0
    assert "Error" not in done.stderr, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    (found,) = (line.partition("FOUND ")[2] for line in done.stdout.splitlines() if "FOUND" in line)
    matrix, shape = json.loads(found)
    permuted = [[0, 1, 0, 0.5], [0, 0, 1, 0.5], [1, 0, 0, 0.5], [0, 0, 0, 1]]
    np.testing.assert_allclose(matrix, permuted, atol=5e-3)
    assert shape == [4, 4]
    assert list(tmp_path.iterdir()) == []


FROM_THE_BROWSER = {"view.gif"} | {
    f"view_{mode}.png" for mode in ("parts", "align", "search", "paint", "track", "scene")
}
"""By scripts/view_screenshots.py: tests/viewer has a browser, these tests have none."""
FROM_RUNS = {"align_curves.png", "compared.png", "reliability.png", "table1_settings.png"}
"""By benchmarks/align_curves.py, benchmarks/compared.py and geocaps eval, on data that are not part of the package."""


@pytest.mark.slow
def test_the_pictures_of_the_documents_are_made_by_the_code(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_images.py"), str(tmp_path)], check=True, timeout=500)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in (ROOT / "docs" / "images").iterdir()} - FROM_THE_BROWSER - FROM_RUNS
    for name in made:
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"


def test_every_picture_is_shown_somewhere():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    unused = [path.name for path in (ROOT / "docs" / "images").iterdir() if f"images/{path.name})" not in text]
    assert unused == []


def test_the_readme_is_short_and_its_film_light():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
    assert (ROOT / "docs" / "images" / "view.gif").stat().st_size < 3_000_000


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def cells(line):
    return [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]


def run_of(title):
    """Protocol → method → cells by column of a run in docs/results.md."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").partition(f"## {title}")[2].partition("\n## ")[0]
    found = {}
    for match in re.finditer(r"\*\*Protocol (\w+), .*?\*\*\n\n((?:\|.*\n)+)", text):
        header, _, *rows = [cells(line) for line in match[2].splitlines()]
        found[match[1]] = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    return found


def compared_systems():
    """Protocol → learned system → its error on the clouds of that run; "–" where it was not measured."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = text.partition("## The systems that the paper compares with")[2].partition("**Rotation error")[2]
    header, _, *rows = [cells(line) for line in table.partition("\n\n")[2].partition("\n\n")[0].splitlines()]
    systems = [dict(zip(header, row, strict=True)) for row in rows if row[0].startswith(("PointNetLK", "quaternion"))]
    return {
        protocol: {row["method"]: {"RAE mean [95 %]": row.get(f"{protocol}: mean [95 %]", "–")} for row in systems}
        for protocol in ("resampled", "noisy", "partial")
    }


def readme_table(start):
    """Header and rows of the table in the README whose first line begins so."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(rf"^{re.escape(start)}.*\n(?:\|.*\n)+", text, re.M)
    header, _, *rows = [cells(line) for line in table[0].splitlines()]
    return header, rows


SHOWN = {
    "capsules": "geocaps",
    "capsules of 0.1.0": "geocaps 0.1.0",
    "geocaps align": "align",
    "PCA": "pca",
    "PCA, best of four flips": "pca_flips",
    "PCA, best of four flips, ICP": "pca_icp",
    "Open3D FPFH, RANSAC, ICP": "open3d",
    "KISS-Matcher, ICP": "kiss_matcher",
    "PointNetLK, best of 24 starts": "PointNetLK, best of 24 starts",
    "a random guess": "chance: random answer",
}


def test_the_readmes_table_is_that_of_the_results_and_leaves_no_better_baseline_out():
    run = run_of("Run: ModelNet40 objects, the shipped weights")
    for protocol, learned in compared_systems().items():
        run[protocol] |= learned
    header, rows = readme_table("| method | sees |")
    assert [row[0] for row in rows] == list(SHOWN)
    for row in rows:
        for column, protocol in ((2, "resampled"), (3, "noisy"), (4, "partial")):
            assert protocol in header[column]
            assert row[column].strip("*") == run[protocol][SHOWN[row[0]]]["RAE mean [95 %]"].split()[0], row
    for protocol in ("resampled", "noisy", "partial"):
        errors = {name: row["RAE mean [95 %]"].split()[0] for name, row in run[protocol].items()}
        better = {name for name, error in errors.items() if error != "–" and float(error) <= float(errors["geocaps"])}
        better.discard("PointNetLK, best of 24 starts, untrained")  # the trained one is better still, and shown
        assert better <= set(SHOWN.values()), protocol


FOUND_AGAIN = {
    "capsules, part percepts and feature": "capsules, parts and feature",
    "capsules, part percepts alone": "geocaps",
    "capsules of 0.1.0": "geocaps 0.1.0",
    "D2 shape distribution": "d2",
}


def test_the_readmes_retrieval_is_that_of_the_results():
    run = run_of("Run: ModelNet40 objects, the shipped weights")
    header, rows = readme_table("| method | `resampled` |")
    checked = 0
    for name, *shown in rows:
        for protocol, cell in zip(header[1:], shown, strict=True):
            measured = run[protocol].get(FOUND_AGAIN.get(name.replace("*", "")), {}).get("top-1 [95 %]")
            if measured is not None:
                assert cell == measured.partition(" [")[0], (name, protocol)
                checked += 1
    assert checked >= 2 * 6 + 3, "both rows of the capsules in every protocol, and 0.1.0 where it was measured"


def test_the_share_of_sure_answers_in_the_limits_is_that_of_the_results():
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = results.partition("**Stated confidence, and the whole object's frame, modelnet40_dev**")[2].split("\n\n")[1]
    right = {row[0]: row[2].partition(" of ")[0] for row in map(cells, table.splitlines())}
    limits = " ".join((ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split())
    assert f"with a confidence of 0.9 or more, {right['partial']} are right" in limits
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"right (within 15°) {right['resampled']} of the time" in readme


def test_the_sums_of_learning_rates_are_those_of_the_schedules():
    paper = preset("E").object
    small = configuration("E", first_layer_configuration(False).model.parts, "chamfer", paper_sizes=False)
    ours = table1_json()["settings"]["E"]
    run = small.object.fitted(ours["planned_steps"])
    total = sum(learning_rate(paper, step) for step in range(paper.steps))
    own = sum(learning_rate(run, step) for step in range(ours["steps"]))
    text = " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())
    assert f"the sum of the paper's learning rates is {total:.1f}, that of this run {own:.2f}" in text
    times, rates = paper.steps / ours["steps"], total / own
    assert f"{times:.0f} times as many steps, and {rates:.1f} times the sum of rates" in text


def table1_json():
    return json.loads((ROOT / "docs" / "results" / "table1.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("protocol", ["parts", "points"])
def test_table_1_is_that_of_its_json(protocol):
    """The tables of the text, figure by figure, against what the run wrote."""
    settings, results = table1_json()["settings"], (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert {"A", "E"} <= set(settings) <= set("ABCDE")
    assert set(settings) == set(SETTINGS) or "not evaluated" in results
    assert len({one["steps"] for one in settings.values()}) == 1, "all settings have the same budget"
    compared, diagnosis = (
        {row[0][0]: row[1:] for row in map(cells, results.partition(title)[2].split("\n\n")[1].splitlines()[2:])}
        for title in (f"**Table 1, protocol {protocol}, ", f"**Diagnosis, protocol {protocol}**")
    )
    for letter, one in settings.items():
        figures = one[protocol]
        named = [(name, f"{name}_ci") for name in ("rae_mean", "top1", "top10", "nn1")]
        named.append(("rae_mean_of_ten", "rae_mean_ci_of_ten"))
        for cell, (name, interval) in zip(compared[letter], named, strict=True):
            low, high = figures[interval]
            assert cell.partition(" → ")[2] == f"{figures[name]:.3f} [{low:.3f}, {high:.3f}]", (letter, name)
        shown = ("rae_median", "within_15", "right_signs", "modulo_signs", "within_15_modulo_signs")
        shown += ("modulo_principal_signs",)
        for cell, name in zip(diagnosis[letter], shown, strict=False):
            assert cell == f"{figures[name]:.3f}", (letter, name)
        assert diagnosis[letter][-3] == f"{one['spread']:.0f}°"
        assert diagnosis[letter][-2].split(" of ")[0] == str(one["steps"])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_figure_comes_from_a_script_that_is_gone(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert not re.search(r"not kept|prototype", text)


# ── the map from the paper to the code ────────────────────────────────────────────────────────────────────────────────

MAP = (ROOT / "docs" / "paper_to_code.md").read_text(encoding="utf-8")
ROOMS = ("geometry", "model", "training", "apps", "evaluation")


@pytest.mark.parametrize("name", sorted(set(re.findall(rf"`((?:{'|'.join(ROOMS)})[./][\w./]+)`", MAP))))
def test_every_name_in_the_map_exists(name):
    module, rest = "geocaps", name.split(".")
    while rest and importlib.util.find_spec(f"{module}.{rest[0]}"):
        module += f".{rest.pop(0)}"
        if not hasattr(importlib.import_module(module), "__path__"):
            break
    functools.reduce(getattr, rest, importlib.import_module(module))


def test_every_row_of_the_map_leads_to_one_place():
    rows = [line for line in MAP.partition("## Section 3.1")[2].splitlines() if line.startswith("| ")]
    codes = [re.split(r"(?<!\\)\|", row)[2].strip() for row in rows if not row.startswith(("| paper |", "| --- |"))]
    assert len(codes) > 40
    for code in codes:
        assert re.fullmatch(rf"`(?:{'|'.join(ROOMS)})\.\w+\.\w[\w.]*`", code), code
    for algorithm in ("Algorithm 1", "Algorithm 2"):
        assert sum(row.startswith(f"| {algorithm},") for row in rows) == 1


# ── extras ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_extras_are_installed_from_the_clone_and_only_one_place_says_how():
    """A release changes ``install_hint`` and this test; no other code spells the command."""
    assert install_hint("viewer") == "pip install '.[viewer]'"
    assert install_hint("viewer") in str(MissingExtraError("geocaps view", "viewer"))
    spelled = [named(path) for path in sorted((ROOT / "src").rglob("*.py")) if "pip install" in path.read_text("utf-8")]
    assert spelled == ["src/geocaps/errors.py"]
    for page in [*PAGES, *sorted((ROOT / "examples").glob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py"))]:
        assert "geocaps[" not in page.read_text(encoding="utf-8"), named(page)


def test_the_documents_extras_are_those_of_the_package():
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    table = re.search(r"^\| extra \|.*\n(?:\|.*\n)+", text, re.M)[0].splitlines()[2:]
    assert {cells(line)[0] for line in table} == extras() - {"test"}
    for page in PAGES:
        for wanted in re.findall(r"pip install [\"']\.\[([\w,]+)\][\"']", page.read_text(encoding="utf-8")):
            assert set(wanted.split(",")) <= extras(), named(page)


# ── links, and the tests that docs/security.md names ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "THIRD_PARTY.md"], ids=named
)
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
