"""Tables of an evaluation, as Markdown (which also reads well in a terminal) and as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geocaps.evaluation.baselines import BASELINES
from geocaps.evaluation.metrics import RIGHT_DEGREES, SURE
from geocaps.evaluation.run import Evaluation

_NOTHING = "–"
_COLUMNS = {
    "rae_mean": "RAE mean [95 %]",
    "rae_median": "median",
    "within_5": "≤ 5°",
    "within_15": "≤ 15°",
    "within_30": "≤ 30°",
    "pair_milliseconds": "ms/pair",
    "top1": "top-1 [95 %]",
    "top10": "top-10",
    "nn1": "1-NN class",
    "query_milliseconds": "ms/query",
}
_WITH_INTERVAL = ("rae_mean", "top1")
_SHARES = ("within_5", "within_15", "within_30", "top1", "top10", "nn1")


@dataclass(frozen=True)
class Table:
    """Plain text in rows and columns; the first column is words, the others figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        padded = [
            [
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            for line in lines
        ]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        body = [f"| {' | '.join(cells)} |" for cells in (padded[0], rule, *padded[1:])]
        return "\n".join([f"**{self.title}**", "", *body])

    def html(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "\n".join(row(cells, "td") for cells in self.rows)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead>{row(self.header, 'th')}</thead><tbody>\n{body}</tbody></table>"


def tables(evaluation: Evaluation) -> list[Table]:
    """One table a protocol, with the baselines and the chance floors beside; one of what a single view tells."""
    result = evaluation.to_dict()
    found = [_protocol_table(name, evaluation, result) for name in evaluation.protocols]
    stated = {name: row for name, row in result["protocols"].items() if "reliability" in row}
    if stated:
        found.append(_confidence_table(stated, result))
    return [*found, _single_view_table(result)]


def markdown(evaluation: Evaluation) -> str:
    """All tables, what was measured, and the notes."""
    lines = [heading(evaluation), ""]
    for table in tables(evaluation):
        lines += [table.markdown(), ""]
    lines += [f"- {note}" for note in key(evaluation)]
    return "\n".join(lines) + "\n"


def heading(evaluation: Evaluation) -> str:
    settings, dataset = evaluation.settings, evaluation.dataset
    return (
        f"weights {settings.weights}, data {dataset.name} ({len(dataset)} objects), {settings.points} points a view, "
        f"seed {settings.seed}, {settings.selection}"
    )


def key(evaluation: Evaluation) -> list[str]:
    """What the tables' words mean, and the notes on this data set."""
    aligned = int(evaluation.scope.aligned.sum())
    classes = ", ".join(evaluation.scope.classes) or "all objects"
    lines = [
        "RAE: rotation error, angle/π in [0, 1]; the share within some degrees and the median are of the same errors",
        f"alignment over {aligned} objects ({classes}); retrieval over all {len(evaluation.dataset)}",
    ]
    lines += [f"{name}: {BASELINES[name].what}" for name in evaluation.baselines]
    return lines + evaluation.notes


def _protocol_table(protocol: str, evaluation: Evaluation, result: Mapping[str, Any]) -> Table:
    row = result["protocols"][protocol]
    chosen = evaluation.settings.trials > 1
    name = f"geocaps ({evaluation.settings.selection})" if chosen else "geocaps"
    rows = [_row(name, row)]
    rows += [
        _row(baseline, by_protocol[protocol])
        for baseline, by_protocol in result["baselines"].items()
        if protocol in by_protocol
    ]
    floor = row["chance"]
    rows.append(_row("chance: random answer", floor | {"rae_mean": floor["rae_random"]}))
    identity = {name.removeprefix("identity_"): value for name, value in floor.items() if name.startswith("identity_")}
    rows.append(_row("chance: identity", identity | {"rae_mean": floor["rae_identity"]}))
    if chosen:
        best = f"rae_oracle_best_of_{evaluation.settings.trials}"
        rows.append(_row(f"chance: oracle best of {evaluation.settings.trials}", {"rae_mean": floor[best]}))
    title = f"Protocol {protocol}, {evaluation.dataset.name}"
    return Table(title, ("method", *_COLUMNS.values()), tuple(rows))


def _confidence_table(protocols: Mapping[str, Any], result: Mapping[str, Any]) -> Table:
    """How far a stated confidence can be trusted."""
    rows = [
        (name, *(_NOTHING if row[key] is None else f"{100 * row[key]:.1f} %" for key in ("sure", "right_when_sure")))
        for name, row in protocols.items()
    ]
    header = ("protocol", f"confidence ≥ {SURE}", f"of these within {RIGHT_DEGREES}°")
    return Table(f"Stated confidence, {result['data']['name']}", header, tuple(rows))


def _row(name: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    return (name, *(_cell(column, figures) for column in _COLUMNS))


def _cell(column: str, figures: Mapping[str, Any]) -> str:
    value = figures.get(column)
    if value is None:
        return _NOTHING
    if column in _SHARES:
        text = f"{100 * value:.1f} %"
    else:
        text = f"{value:.3f}" if column.startswith("rae") else _milliseconds(value)
    interval = figures.get(f"{column}_ci")
    if interval is None or column not in _WITH_INTERVAL:
        return text
    low, high = interval
    return f"{text} [{100 * low:.1f}, {100 * high:.1f}]" if column in _SHARES else f"{text} [{low:.3f}, {high:.3f}]"


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _single_view_table(result: Mapping[str, Any]) -> Table:
    rebuilt = result["reconstruction"]
    frame = result["canonicalisation"]
    rows = [
        _figure("Chamfer × 10³, one layer", rebuilt, "chamfer_one_layer", None, 1000.0),
        _figure("Chamfer × 10³, two layers", rebuilt, "chamfer_two_layer", None, 1000.0),
        _figure("stability, degrees", frame["stability"], "degrees", frame["stability"]["chance_degrees"]),
        _figure("consistency, degrees", frame["consistency"], "degrees", frame["consistency"]["chance_degrees"]),
    ]
    if result["parts"] is not None:
        names = {"nmi": "parts: NMI", "iou": "parts: IoU, one to one", "iou_merged": "parts: IoU, capsules merged"}
        rows += [_figure(text, result["parts"], name, result["parts"]["chance"][name]) for name, text in names.items()]
    header = ("one view", "mean", "95 %", "chance", "objects")
    return Table(f"One view at a time, {result['data']['name']}", header, tuple(rows))


def _figure(
    text: str, figures: Mapping[str, Any], name: str, chance: float | None, scale: float = 1.0
) -> tuple[str, ...]:
    value, interval = figures[name], figures[f"{name}_ci"]
    return (
        text,
        _NOTHING if value is None else f"{scale * value:.3g}",
        _NOTHING if interval is None else f"[{scale * interval[0]:.3g}, {scale * interval[1]:.3g}]",
        _NOTHING if chance is None else f"{chance:.3g}",
        str(figures["objects"]),
    )
