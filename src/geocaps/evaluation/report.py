"""One HTML page with everything in it: tables, figures (as data), what the words mean."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence

from geocaps.evaluation.figures import FIGURES
from geocaps.evaluation.run import Evaluation
from geocaps.evaluation.tables import heading, key, tables

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1.5rem 0; font-size: 0.85rem; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2rem 0; } img { max-width: 100%; } figcaption { color: #555; }
"""


def page(evaluation: Evaluation, images: Mapping[str, bytes]) -> str:
    """The whole evaluation on one page."""
    body = ["<h1>geocaps evaluation</h1>", f"<p>{html.escape(heading(evaluation))}</p>"]
    body += [table.html() for table in tables(evaluation)]
    body.append("<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in key(evaluation)) + "</ul>")
    body += [inline_image(name, image, FIGURES[name][0]) for name, image in images.items()]
    return html_page(f"geocaps evaluation: {evaluation.dataset.name}", body)


def html_page(title: str, body: Sequence[str]) -> str:
    """A page of these pieces of HTML; it loads nothing from anywhere."""
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>\n" + "\n".join(body) + "\n</body></html>\n"


def inline_image(name: str, png: bytes, caption: str) -> str:
    """A figure whose image is inside the page."""
    text, data = html.escape(caption), base64.b64encode(png).decode()
    return (
        f'<figure id="{html.escape(name)}"><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )
