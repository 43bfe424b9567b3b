"""Pieces of HTML for the page. Whatever came from outside is escaped: a file's name is text, never markup."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from geocaps.apps.drawing import part_colors

_BOX = "margin:0 .6em .6em;padding:.45em .6em;border-radius:4px;font-size:.85em;line-height:1.45;"

# A browser's own file input takes drops; viser hides it behind a button, so the drop is handed on to it.
DROP_ZONE = (
    '<div id="geocaps-drop" ondragover="event.preventDefault()" '
    "ondrop=\"event.preventDefault();const i=document.querySelector('input[type=file]');"
    "i.files=event.dataTransfer.files;i.dispatchEvent(new Event('change',{bubbles:true}))\" "
    f'style="{_BOX}border:1px dashed #888;text-align:center;color:#888">or drop a file here</div>'
)


def notice(text: str) -> str:
    return f'<div id="geocaps-message" style="{_BOX}background:#8881">{escape(text)}</div>'


def trouble(text: str) -> str:
    return f'<div id="geocaps-message" role="alert" style="{_BOX}background:#c0392b;color:#fff">{escape(text)}</div>'


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns: what, and how much."""
    cells = "".join(
        f'<tr><td style="color:#888;padding-right:.8em">{escape(what)}</td><td>{escape(value)}</td></tr>'
        for what, value in rows
    )
    return f'<table style="{_BOX}border-spacing:0">{cells}</table>'


def bars(values: Sequence[float], part: int) -> str:
    """A feature as bars to the left (negative) and right of the middle, in the colour of its part."""
    reach = max(max(abs(value) for value in values), 1e-12)
    color = css_color(part_colors(part + 1)[part])
    lines = []
    for index, value in enumerate(values):
        width = 50 * abs(value) / reach
        left = 50 - width if value < 0 else 50
        lines.append(
            '<div style="display:flex;align-items:center;height:1.35em">'
            f'<span style="width:1.6em;color:#888">{index}</span>'
            '<span style="position:relative;flex:1;height:.8em;background:#8882">'
            f'<span class="geocaps-bar" style="position:absolute;left:{left:.1f}%;width:{width:.1f}%;height:100%;'
            f'background:{color}"></span></span>'
            f'<span style="width:4.2em;text-align:right">{value:+.3f}</span></div>'
        )
    return f'<div style="{_BOX}">{"".join(lines)}</div>'


def state(values: Mapping[str, Any]) -> str:
    """The page's own state, for people who look behind it and for tests."""
    text = escape(json.dumps(values, ensure_ascii=False))
    return f'<pre id="geocaps-state" style="{_BOX}white-space:pre-wrap;word-break:break-all">{text}</pre>'


def css_color(rgb: np.ndarray) -> str:
    red, green, blue = (round(255 * float(value)) for value in rgb)
    return f"rgb({red},{green},{blue})"
