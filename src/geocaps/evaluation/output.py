"""Results as files: ``results.json``, ``results.md``, figures, and a page that holds all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geocaps.atomic import written_whole
from geocaps.data import PointDataset
from geocaps.errors import InvalidInputError, UsageError
from geocaps.evaluation.report import page
from geocaps.evaluation.run import Evaluation
from geocaps.evaluation.table1 import PAPER, Row, paper_table
from geocaps.evaluation.tables import markdown


def make_folder(folder: Path) -> None:
    """Before the work, so that hours of it do not end without a place to write to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}; choose another one") from error


def write_file(folder: Path, name: str, content: bytes) -> Path:
    """Beside first, then in place: an old result stays whole until the new one is."""
    path = folder / name
    try:
        with written_whole(path) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}; choose another folder") from error
    return path


def write_results(evaluation: Evaluation, images: Mapping[str, bytes], folder: Path) -> Path:
    """``results.json``, ``results.md`` and each figure as a PNG."""
    make_folder(folder)
    write_file(folder, "results.json", _json(evaluation.to_dict()))
    write_file(folder, "results.md", markdown(evaluation).encode())
    for name, image in images.items():
        write_file(folder, f"{name}.png", image)
    return folder


def write_report(evaluation: Evaluation, images: Mapping[str, bytes], folder: Path) -> Path:
    """``report.html``: one self-contained page."""
    make_folder(folder)
    return write_file(folder, "report.html", page(evaluation, images).encode())


def write_table1(rows: Mapping[str, Row], dataset: PointDataset, picture: bytes, folder: Path) -> dict[str, Any]:
    """``table1.json``, ``table1.md`` and ``settings.png`` beside the runs; returns what the JSON holds."""
    result = {
        "data": {"name": dataset.name, "objects": len(dataset), "fingerprint": dataset.fingerprint},
        "settings": {
            letter: dict(row.summary) | {"steps": row.steps, "seconds": row.seconds, "paper": PAPER[letter]}
            for letter, row in rows.items()
        },
    }
    write_file(folder, "table1.json", _json(result))
    write_file(folder, "settings.png", picture)
    write_file(folder, "table1.md", (paper_table(dict(rows), dataset).markdown() + "\n").encode())
    return result


def _json(result: Mapping[str, Any]) -> bytes:
    return (json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
