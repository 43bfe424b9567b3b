"""Reports of an evaluation: Markdown tables, JSON, and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geocaps.atomic import make_folder
from geocaps.evaluation.baselines import BASELINES
from geocaps.evaluation.figures import FIGURES
from geocaps.evaluation.metrics import RIGHT_DEGREES, SURE
from geocaps.evaluation.protocols import MODEL
from geocaps.evaluation.run import Evaluation
from geocaps.io.save import write_whole

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
_PARTS = {"nmi": "parts: NMI", "iou": "parts: IoU, one to one", "iou_merged": "parts: IoU, capsules merged"}
_LABELS = {
    "labels": "labels of two samplings: adjusted Rand index",
    "canonical_labels": "canonical labels: adjusted Rand index",
    "canonical_same": "canonical labels: share that is the same",
}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1.5rem 0; font-size: 0.85rem; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2rem 0; } img { max-width: 100%; } figcaption { color: #555; }
"""


@dataclass(frozen=True)
class Table:
    """Plain text in rows and columns; the first column is text, the others are figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Markdown, padded so that it is also readable in a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]

        def padded(line: Sequence[str]) -> list[str]:
            return [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]

        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        body = [f"| {' | '.join(cells)} |" for cells in (padded(self.header), rule, *map(padded, self.rows))]
        return "\n".join([f"**{self.title}**", "", *body])

    def html(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "\n".join(row(cells, "td") for cells in self.rows)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead>{row(self.header, 'th')}</thead><tbody>\n{body}</tbody></table>"


# ── an evaluation as text ─────────────────────────────────────────────────────────────────────────────────────────────


def tables(evaluation: Evaluation) -> list[Table]:
    """One table for each protocol, with baselines and chance; one for the figures of single clouds."""
    result = evaluation.to_dict()
    found = [_protocol_table(name, evaluation, result) for name in evaluation.protocols]
    stated = {name: row for name, row in result["protocols"].items() if "reliability" in row}
    if stated:
        found.append(_trust_table(stated, result))
    if result["completion"]:
        found.append(_completion_table(result))
    return [*found, _one_cloud_table(result)]


def markdown(evaluation: Evaluation) -> str:
    """A heading, all tables, and the notes."""
    lines = [_heading(evaluation), ""]
    for table in tables(evaluation):
        lines += [table.markdown(), ""]
    lines += [f"- {note}" for note in _key(evaluation)]
    return "\n".join(lines) + "\n"


def page(evaluation: Evaluation, images: Mapping[str, bytes]) -> str:
    """The whole evaluation on one HTML page."""
    body = ["<h1>geocaps evaluation</h1>", f"<p>{html.escape(_heading(evaluation))}</p>"]
    body += [table.html() for table in tables(evaluation)]
    body.append("<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in _key(evaluation)) + "</ul>")
    body += [inline_image(name, image, FIGURES[name][0]) for name, image in images.items()]
    return html_page(f"geocaps evaluation: {evaluation.dataset.name}", body)


def html_page(title: str, body: Sequence[str]) -> str:
    """A page with this HTML as its body; it loads nothing."""
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>\n" + "\n".join(body) + "\n</body></html>\n"


def inline_image(name: str, png: bytes, caption: str) -> str:
    """A figure with its image embedded in the page."""
    text, data = html.escape(caption), base64.b64encode(png).decode()
    return (
        f'<figure id="{html.escape(name)}"><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _heading(evaluation: Evaluation) -> str:
    settings, dataset = evaluation.settings, evaluation.dataset
    return (
        f"weights {settings.weights}, data {dataset.name} ({len(dataset)} objects), "
        f"{settings.points} points per cloud, seed {settings.seed}, {settings.selection}"
    )


def _key(evaluation: Evaluation) -> list[str]:
    """Explanations of the tables, and notes on this data set."""
    aligned = int(evaluation.scope.aligned.sum())
    classes = ", ".join(evaluation.scope.classes) or "all objects"
    lines = [
        "RAE: rotation error, angle/π in [0, 1]; the median and the shares within some degrees are of the same errors",
        f"alignment over {aligned} objects ({classes}); retrieval over all {len(evaluation.dataset)}",
    ]
    lines += [f"{name}: {BASELINES[name].what}" for name in evaluation.baselines]
    if evaluation.completion:
        lines.append(
            "mirror image: in the plane through the cloud's centroid, orthogonal to one of its principal axes, for "
            "which the image is nearest to the cloud"
        )
    return lines + evaluation.notes


def _protocol_table(protocol: str, evaluation: Evaluation, result: Mapping[str, Any]) -> Table:
    row, trials = result["protocols"][protocol], evaluation.settings.trials
    floor = row["chance"]
    identity = {name.removeprefix("identity_"): value for name, value in floor.items() if name.startswith("identity_")}
    rows = {MODEL if trials == 1 else f"{MODEL} ({evaluation.settings.selection})": row}
    beside = result["variants"] | result["baselines"]
    rows |= {name: found[protocol] for name, found in beside.items() if protocol in found}
    rows["chance: random answer"] = floor | {"rae_mean": floor["rae_random"]}
    rows["chance: identity"] = identity | {"rae_mean": floor["rae_identity"]}
    if trials > 1:
        rows[f"chance: oracle best of {trials}"] = {"rae_mean": floor[f"rae_oracle_best_of_{trials}"]}
    cells = tuple((name, *(_cell(column, figures) for column in _COLUMNS)) for name, figures in rows.items())
    return Table(f"Protocol {protocol}, {evaluation.dataset.name}", ("method", *_COLUMNS.values()), cells)


def _cell(column: str, figures: Mapping[str, Any]) -> str:
    value, interval = figures.get(column), figures.get(f"{column}_ci")
    if value is None:
        return _NOTHING
    if column.endswith("milliseconds"):
        return f"{value:.1f}" if value < 10 else f"{value:.0f}"
    error = column.startswith("rae")
    text = f"{value:.3f}" if error else f"{100 * value:.1f} %"
    if interval is None or column not in _WITH_INTERVAL:
        return text
    low, high = interval
    return f"{text} [{low:.3f}, {high:.3f}]" if error else f"{text} [{100 * low:.1f}, {100 * high:.1f}]"


def _trust_table(protocols: Mapping[str, Any], result: Mapping[str, Any]) -> Table:
    """Calibration of the confidence, and errors of the whole object's centre and size."""
    right = f"of these within {RIGHT_DEGREES}°"
    shares = {
        "sure": (f"clouds: confidence ≥ {SURE}", "answers"),
        "right_when_sure": (right, "answers_sure"),
        "sure_pairs": (f"pairs: both ≥ {SURE}", "pairs"),
        "right_when_pair_sure": (right, "pairs_sure"),
    }
    frame = {
        "center_mean": "centre off, mean (radii)",
        "center_median": "median",
        "scale_error_mean": "scale off, mean",
        "scale_error_median": "median",
    }

    def cell(name: str, value: float | None) -> str:
        if value is None:
            return _NOTHING
        return f"{value:.3f}" if name.startswith("center") else f"{100 * value:.1f} %"

    rows = []
    for protocol, row in protocols.items():
        trusted = [f"{cell(name, row[name])} of {row[count]}" for name, (_, count) in shares.items()]
        rows.append((protocol, *trusted, *(cell(name, row.get(name)) for name in frame)))
    title = f"Stated confidence, and the whole object's frame, {result['data']['name']}"
    header = ("protocol", *(text for text, _ in shares.values()), *frame.values())
    return Table(title, header, tuple(rows))


def _completion_table(result: Mapping[str, Any]) -> Table:
    """How close the completion of a partial cloud comes to the whole object."""
    methods = {
        "chamfer_completed": f"{MODEL} [95 %]",
        "chamfer_as_given": "cloud as it is [95 %]",
        "chamfer_mirrored": "with its mirror image [95 %]",
    }

    def cell(name: str, row: Mapping[str, Any]) -> str:
        interval = row[f"{name}_ci"]
        text = f"{1000 * row[name]:.2f}"
        return text if interval is None else f"{text} [{1000 * interval[0]:.2f}, {1000 * interval[1]:.2f}]"

    rows = tuple(
        (name, *(cell(key, row) for key in methods), str(row["objects"])) for name, row in result["completion"].items()
    )
    title = f"Completion: Chamfer × 10³ to the whole object, {result['data']['name']}"
    return Table(title, ("protocol", *methods.values(), "objects"), rows)


def _one_cloud_table(result: Mapping[str, Any]) -> Table:
    def row(text: str, figures: Mapping[str, Any], name: str, chance: float | None, scale: int = 1) -> tuple[str, ...]:
        value, interval = figures[name], figures.get(f"{name}_ci")
        return (
            text,
            _NOTHING if value is None else f"{scale * value:.3g}",
            _NOTHING if interval is None else f"[{scale * interval[0]:.3g}, {scale * interval[1]:.3g}]",
            _NOTHING if chance is None else f"{chance:.3g}",
            str(figures["objects"]),
        )

    rows = [
        row(f"Chamfer × 10³, {layers}", result["reconstruction"], name, None, 1000)
        for name, layers in (("chamfer_one_layer", "one layer"), ("chamfer_two_layer", "two layers"))
    ]
    for name, figures in result["canonicalisation"].items():
        rows.append(row(f"{name}, RMS degrees", figures, "degrees", figures["chance_degrees"]))
    consistency = result["canonicalisation"]["consistency"]
    chance = consistency["chance_mean_angle"]
    rows.append(row("angle between two of a class, degrees", consistency, "mean_angle", chance))
    for name, figures in consistency["classes"].items():
        rows.append(row(f"– {name}", figures, "mean_angle", chance))
    for name, text in _LABELS.items():
        if result["labels"][name] is not None:
            rows.append(row(text, result["labels"], name, None))
    if parts := result["parts"]:
        rows += [row(text, parts, name, parts["chance"][name]) for name, text in _PARTS.items()]
    header = ("one cloud", "mean", "95 %", "chance", "objects")
    return Table(f"One cloud at a time, {result['data']['name']}", header, tuple(rows))


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_file(folder: Path, name: str, content: bytes) -> Path:
    """A result in its folder; an old one stays until the new one is complete."""
    write_whole(folder / name, content)
    return folder / name


def write_json(folder: Path, name: str, result: Mapping[str, Any]) -> Path:
    return write_file(folder, name, (json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_results(evaluation: Evaluation, images: Mapping[str, bytes], folder: Path) -> Path:
    """``results.json``, ``results.md`` and each figure as a PNG."""
    make_folder(folder)
    write_json(folder, "results.json", evaluation.to_dict())
    write_file(folder, "results.md", markdown(evaluation).encode())
    for name, image in images.items():
        write_file(folder, f"{name}.png", image)
    return folder


def write_report(evaluation: Evaluation, images: Mapping[str, bytes], folder: Path) -> Path:
    """``report.html``: one self-contained page."""
    make_folder(folder)
    return write_file(folder, "report.html", page(evaluation, images).encode())
