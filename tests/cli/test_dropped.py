"""Points that are NaN, in every command that reads clouds: one rule, one sentence, one flag."""

import json

import numpy as np
import pytest
import torch

from geocaps import cli
from geocaps.data.synthetic import make_shape
from geocaps.io import save_points

HOLES = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same chair with holes: in a format that has a meaning for them, and in one that has none."""
    folder = tmp_path_factory.mktemp("scans")
    points = make_shape("chair", 3).sample(600, torch.Generator().manual_seed(0)).points.numpy()
    save_points(folder / "labelled.ply", points, labels=np.arange(600) // 300)
    points = np.insert(points, range(0, 70, 10), np.nan, axis=0)
    save_points(folder / "scan.pcd", points)
    save_points(folder / "scan.xyz", points)
    (folder / "frames").mkdir()
    save_points(folder / "frames" / "0.ply", points[np.isfinite(points).all(axis=1)])
    return folder


def commands(scan, folder):
    out = folder / f"out_{scan.suffix[1:]}"
    index, labelled = f"{out}.lance", folder / "labelled.ply"
    return {
        "align": (["align", scan, scan], lambda record: record["dropped"] == [HOLES, HOLES]),
        "parts": (["parts", scan], lambda record: record["dropped"] == HOLES and record["points"] == 600),
        "canonical": (["canonical", scan], lambda record: record["objects"][0]["dropped"] == HOLES),
        "transfer": (["transfer", labelled, scan], lambda record: record["objects"][0]["dropped"] == HOLES),
        "complete": (["complete", scan, "--out", f"{out}.ply"], lambda record: record["dropped"] == HOLES),
        "encode": (["encode", scan, "--out", f"{out}.npz", "--overwrite"], lambda record: record["dropped"] == HOLES),
        "index add": (["index", "add", index, scan], lambda record: record["dropped"] == HOLES),
        "index search": (["index", "search", index, scan], lambda record: record["dropped"] == HOLES),
        "view": (["view", scan, "--export", f"{out}.html"], lambda record: record["dropped"] == HOLES),
        "locate": (["locate", labelled, scan], lambda record: len(record["finds"]) == 1),
        "scene": (["scene", scan], lambda record: len(record["objects"]) == 1),
        "track": (["track", scan, folder / "frames"], lambda record: record["tracked"] == 1),
    }


@pytest.mark.parametrize(
    "command",
    [
        "align",
        "parts",
        "canonical",
        "complete",
        "transfer",
        "encode",
        "index add",
        "index search",
        "view",
        "locate",
        "scene",
        "track",
    ],
)
def test_a_scan_is_read_without_them_and_other_files_when_asked(command, folder, capsys):
    def call(scan, *options):
        args, fits = commands(scan, folder)[command]
        code = cli.run([*map(str, args), *options, "--json"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err, fits

    code, out, err, fits = call(folder / "scan.pcd")
    assert code == 0, err
    assert fits(json.loads(out)), out
    assert "geocaps: warning: " in err
    assert "NaN or infinite" in err
    assert str(HOLES) in err

    code, _, err, _ = call(folder / "scan.xyz")
    assert code == 1
    assert "7 of 607 points have a coordinate that is NaN or infinite: leave them out with --drop-invalid" in err

    code, out, err, fits = call(folder / "scan.xyz", "--drop-invalid")
    assert code == 0, err
    assert fits(json.loads(out)), out
    assert "geocaps: warning: " in err
