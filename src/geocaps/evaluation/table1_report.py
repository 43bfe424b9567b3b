"""Table 1 as it is printed and written: the paper's figures beside ours, and the diagnosis of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geocaps.data import PointDataset
from geocaps.evaluation.metrics import chance_modulo_signs
from geocaps.evaluation.protocols import chance
from geocaps.evaluation.report import Table, write_file, write_json
from geocaps.evaluation.run import described
from geocaps.evaluation.table1 import PAPER, PAPER_POINTS, PROTOCOLS, SETTINGS, TRIALS, Row

_COMPARED = {"rae_mean": "rotation error", "top1": "top-1", "top10": "top-10", "nn1": "1-NN"}
_DIAGNOSIS = {
    "rae_median": "median",
    "within_15": "≤ 15°",
    "right_signs": "right signs",
    "modulo_signs": "error modulo signs",
    "within_15_modulo_signs": "≤ 15° modulo signs",
    "modulo_principal_signs": "error modulo principal signs",
}


def paper_table(rows: dict[str, Row], dataset: PointDataset) -> str:
    """For each protocol the paper's figures beside ours, with 95 % intervals, and the diagnosis of ours."""
    tables = (made(protocol, rows, dataset) for protocol in PROTOCOLS for made in (_compared, _diagnosis))
    return "\n\n".join(table.markdown() for table in tables)


def _compared(protocol: str, rows: dict[str, Row], dataset: PointDataset) -> Table:
    stated = PAPER if protocol == "parts" else PAPER_POINTS
    header = ["setting", *(f"{text} (paper → ours)" for text in (*_COMPARED.values(), "best of ten"))]
    lines = []
    for letter, row in rows.items():
        paper, ours = stated.get(letter, {}), row.figures[protocol]
        cells = [f"{_text(paper.get(name))} → {_text(ours[name])}{_interval(ours[f'{name}_ci'])}" for name in _COMPARED]
        best = f"{_text(ours['rae_mean_of_ten'])}{_interval(ours['rae_mean_ci_of_ten'])}"
        lines.append((f"{letter}. {SETTINGS[letter]}", *cells, f"{_text(paper.get('best_of_ten'))} → {best}"))
    one, ten = chance(protocol, dataset, 1), chance(protocol, dataset, TRIALS)
    cells = [_text(one["rae_random" if name == "rae_mean" else name]) for name in _COMPARED]
    cells.append(_text(ten[f"rae_oracle_best_of_{TRIALS}"]))
    lines.append((f"chance: a random answer (identity: {one['rae_identity']:.3f})", *cells))
    return Table(f"Table 1, protocol {protocol}, {dataset.name} ({len(dataset)} objects)", tuple(header), tuple(lines))


def _diagnosis(protocol: str, rows: dict[str, Row], dataset: PointDataset) -> Table:
    lines = []
    for letter, row in rows.items():
        cells = [_text(row.figures[protocol][name]) for name in _DIAGNOSIS]
        steps = str(row.steps) if row.steps == row.planned else f"{row.steps} of {row.planned}"
        lines.append((letter, *cells, f"{row.spread:.0f}°", steps, f"{row.seconds / 60:.1f}"))
    right, signs = chance(protocol, dataset, 1)["within_15"], _text(chance_modulo_signs())
    lines.append(("chance", "–", _text(right), "0.250", signs, _text(4 * right), signs, "–", "–", "–"))
    header = ("setting", *_DIAGNOSIS.values(), "spread", "steps", "minutes")
    return Table(f"Diagnosis, protocol {protocol}", header, tuple(lines))


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "–"


def _interval(interval: list[float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"


def write_table1(rows: dict[str, Row], dataset: PointDataset, picture: bytes, folder: Path) -> dict[str, Any]:
    """``table1.json``, ``table1.md`` and ``settings.png`` beside the runs; returns what the JSON holds."""
    settings = {
        letter: row.figures
        | {"spread": row.spread, "steps": row.steps, "planned_steps": row.planned, "seconds": row.seconds}
        | {"curve": row.curve, "paper": PAPER[letter]}
        for letter, row in rows.items()
    }
    result = {"data": described(dataset), "settings": settings}
    write_json(folder, "table1.json", result)
    write_file(folder, "settings.png", picture)
    write_file(folder, "table1.md", (paper_table(rows, dataset) + "\n").encode())
    return result
