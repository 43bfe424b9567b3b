"""Building blocks of the page: the skeleton of a mode, nodes of viser's scene, and pieces of HTML."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from geocaps.apps.drawing import label_colors, part_colors
from geocaps.apps.rendering import surface
from geocaps.errors import InvalidInputError
from geocaps.geometry.se3 import Pose
from geocaps.geometry.similarity import Similarity
from geocaps.io import SUFFIXES
from geocaps.viewer.clouds import ShownCloud
from geocaps.viewer.session import Picture

if TYPE_CHECKING:
    from viser import ClientHandle

    from geocaps.viewer.page import Page

INPUT_AT = np.array([-1.2, 0.0, 0.0])
CANONICAL_AT = np.array([1.2, 0.0, 0.0])
ABOVE = np.array([0.0, 1.15, 0.0])  # offset of a title from the centre of an object
EYE = np.array([0.0, 1.0, 2.9])  # initial position of the camera
_NEUTRAL = np.array([0.27, 0.47, 0.67])
_POINT = 0.018
_ROW, _APART = 4.8, 2.1  # width of a row of objects, and distance of neighbours, in radii of a single object
_LIGHT = np.array([-0.40, 0.75, 0.53])
_AMBIENT, _DIFFUSE = 0.62, 0.46
BOX = "margin:0 .6em .6em;padding:.45em .6em;border-radius:4px;font-size:.85em;line-height:1.45;"


class Mode(ABC):
    """A panel of controls and a group of scene nodes, shown and hidden together."""

    group: ClassVar[str]
    explained: ClassVar[str]  # a sentence for people who see the page for the first time
    nothing: ClassVar[str] = ""  # message on saving a result before there is one
    found: Any = None
    panel: Any

    def __init__(self, page: Page) -> None:
        self.page, self.canvas = page, page.canvas

    def result(self) -> Any:
        if self.found is None:
            raise InvalidInputError(self.nothing)
        return self.found

    def offer(self, names: tuple[str, ...]) -> None:  # noqa: B027 - most modes offer no clouds of their own
        """Offers clouds that were opened meanwhile."""

    def opened(self) -> None:  # noqa: B027
        """A cloud was opened while this mode was active."""

    def clicked(self, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]) -> None:  # noqa: B027
        """The scene was clicked or touched, along a ray."""

    def left(self) -> None:  # noqa: B027
        """The page was closed, or another mode is shown: background activity stops."""

    def show(self, visible: bool) -> None:
        self.panel.visible = visible
        self.canvas.group(self.group, visible)
        if visible:
            self.draw()
        else:
            self.left()

    @abstractmethod
    def draw(self) -> None: ...

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Its entries in the page's state panel."""

    @abstractmethod
    def cloud(self) -> tuple[Float[np.ndarray, "n 3"], Int[np.ndarray, "n"]]:
        """Points and labels to save, in the user's units."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Data to save as JSON."""

    @abstractmethod
    def pose(self) -> Similarity:
        """The pose to save as a 4 × 4 matrix."""

    @abstractmethod
    def code(self) -> str:
        """The same as a command and in Python."""


class Canvas:
    """The scene of one browser; ``nodes`` are those sent to it, by name.

    Nodes are created once and then modified, so that nothing flickers. Each belongs to a group that is shown or hidden
    as a whole.
    """

    def __init__(self, client: ClientHandle) -> None:
        self._scene = client.scene
        self.nodes: dict[str, Any] = {}

    def _put(self, name: str, make: Callable[..., Any], **values: Any) -> None:
        node = self.nodes.get(name)
        if node is None:
            self.nodes[name] = make(name, **values)
            return
        for attribute, value in values.items():
            setattr(node, attribute, value)

    def group(self, name: str, visible: bool) -> None:
        self._put(name, partial(self._scene.add_frame, show_axes=False), visible=visible)

    def points(
        self,
        name: str,
        points: Float[np.ndarray, "n 3"],
        colors: np.ndarray,
        at: np.ndarray,
        visible: bool = True,
        normals: Float[np.ndarray, "n 3"] | None = None,
        size: float = 1.0,
    ) -> None:
        """A shaded cloud; normals are estimated unless given. ``size`` of points is relative to the default."""
        make = partial(self._scene.add_point_cloud, point_size=size * _POINT, point_shape="circle", precision="float32")
        paint = np.broadcast_to(np.asarray(colors), points.shape)
        if visible:
            paint = lit(paint, surface(points)[0] if normals is None else normals)
        paint = np.rint(paint * 255).astype(np.uint8)
        self._put(name, make, points=points.astype(np.float32), colors=paint, position=at, visible=visible)

    def axes(self, name: str, poses: Pose, at: np.ndarray, size: float, visible: bool) -> None:
        """Frames ``[k]``; their number may change."""
        wxyz, places = poses.wxyz.numpy(), poses.translation.numpy() + at.astype(np.float32)
        if name in self.nodes and self.nodes[name].batched_wxyzs.shape != wxyz.shape:
            # viser replaces a node of the same name.
            del self.nodes[name]
        make = partial(self._scene.add_batched_axes, axes_length=size, axes_radius=size / 30)
        self._put(name, make, batched_wxyzs=wxyz, batched_positions=places, visible=visible)

    def label(self, name: str, text: str, at: np.ndarray) -> None:
        self._put(name, self._scene.add_label, text=text, position=at)

    def remove(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            node.remove()

    def picture(self, group: str, picture: Picture, at: np.ndarray, shown: Mapping[str, bool]) -> None:
        """A picture of an object, with the layers that are switched on."""
        colors = part_colors(len(picture.surfaces))
        paint = label_colors(picture.labels, len(colors)) if shown["colors"] else _NEUTRAL
        self.points(f"{group}/points", picture.points, paint, at, shown["points"], picture.normals)
        per_part = np.repeat(colors, picture.surfaces.shape[1], axis=0)
        for layer, surfaces in (("from_parts", picture.surfaces), ("from_object", picture.object_surfaces)):
            self.points(f"{group}/{layer}", surfaces.reshape(-1, 3), per_part, at, shown[layer])
        for part, color in enumerate(colors):
            make = partial(
                self._scene.add_mesh_simple, faces=picture.triangles, color=tuple(color), side="double",
                flat_shading=True, cast_shadow=False, receive_shadow=False,
            )  # fmt: skip
            vertices = picture.surfaces[part].astype(np.float32)
            self._put(f"{group}/surfaces/{part}", make, vertices=vertices, position=at, visible=shown["surfaces"])
        self.axes(f"{group}/part_frames", picture.part_poses, at, 0.14, shown["part_frames"])
        self.axes(f"{group}/object_frame", picture.object_pose[None], at, 0.6, shown["object_frame"])


def lit(colors: Float[np.ndarray, "n 3"], normals: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Colours of points in a light from above, on both sides of a surface; points without a normal are fully lit."""
    facing = normals * np.where(normals @ EYE < 0, -1.0, 1.0)[:, None]
    light = _AMBIENT + _DIFFUSE * np.maximum(facing @ (_LIGHT / np.linalg.norm(_LIGHT)), 0)
    light = np.where((normals != 0).any(axis=1), light, 1.0)
    return (colors * light[:, None]).clip(0, 1)


def in_a_row(count: int) -> tuple[float, list[Float[np.ndarray, "3"]]]:
    """The radius and the positions of ``count`` objects side by side, centred."""
    size = min(1.0, _ROW / (_APART * count))
    return size, [np.array([(k - (count - 1) / 2) * _APART * size, 0.0, 0.0]) for k in range(count)]


def short(name: str, clouds: int) -> str:
    """A name, shortened to fit above one of several clouds; the end is the most informative."""
    room = 84 // clouds
    return name if len(name) <= room else "…" + name[1 - room :]


# ── HTML; everything from outside is escaped, as a file's name is text and never markup ───────────────────────────────

# A browser's own file input accepts drops, but viser hides it behind a button, so drops are forwarded to it.
DROP_ZONE = (
    '<div id="geocaps-drop" ondragover="event.preventDefault()" '
    "ondrop=\"event.preventDefault();const i=document.querySelector('input[type=file]');"
    "i.files=event.dataTransfer.files;i.dispatchEvent(new Event('change',{bubbles:true}))\" "
    f'style="{BOX}border:1px dashed #888;text-align:center;color:#888">or drop a file here</div>'
)

# A browser captures a touch for the element under the finger, but viser treats every captured pointer as dragging a
# handle, so taps would be lost. In HTML that is added to a page, only the error handler of an image runs a script.
TOUCH = (
    '<img hidden src="data:," alt="" onerror="this.id=\'geocaps-touch\';window.addEventListener(\'pointerdown\','
    "e=>e.pointerType==='touch'&&e.target.tagName==='CANVAS'&&e.target.releasePointerCapture(e.pointerId),true)\">"
)


def notice(text: str) -> str:
    return f'<div style="{BOX}background:#8881">{escape(text)}</div>'


def trouble(text: str) -> str:
    return f'<div role="alert" style="{BOX}background:#c0392b;color:#fff">{escape(text)}</div>'


def message(box: str) -> str:
    """A notice or an error as the page's own message, of which there is one."""
    return f'<div id="geocaps-message">{box}</div>'


def mode_notice(name: str, explained: str) -> str:
    """The active mode, and what to do in it."""
    return (
        f'<div id="geocaps-mode" style="{BOX}border-left:4px solid #2b6cb0;background:#2b6cb018">'
        f"<b>{escape(name)}</b>: {escape(explained)}</div>"
    )


def matrix(pose: Similarity) -> str:
    """A pose as four rows of numbers."""
    rows = "\n".join(" ".join(f"{value:9.4f}" for value in row) for row in pose.matrix())
    return f'<pre class="geocaps-pose" style="{BOX}margin-top:0">{rows}</pre>'


BUSY = (
    f'<div id="geocaps-busy" role="status" style="{BOX}background:#d6901f33">'
    '<progress style="width:6em;vertical-align:middle"></progress> working …</div>'
)


def code_panel(code: str) -> str:
    """Text with a button that copies it."""
    # Browsers have no clipboard for remote pages without TLS, so there the old way is used.
    copy = (
        "const t=this.parentElement.querySelector('pre'),done=()=>{this.textContent='copied'};"
        "navigator.clipboard?navigator.clipboard.writeText(t.textContent).then(done):"
        "(getSelection().selectAllChildren(t),document.execCommand('copy'),done())"
    )
    return (
        f'<div style="{BOX}"><button id="geocaps-copy" onclick="{copy}">copy</button>'
        f'<pre id="geocaps-code" style="white-space:pre-wrap;user-select:text">{escape(code)}</pre></div>'
    )


def file_of(cloud: ShownCloud) -> tuple[str, str]:
    """The file of a cloud, and a remark if there is none yet."""
    name = cloud.path or cloud.name
    if Path(name).suffix.lower() in SUFFIXES:
        return name, ""
    file = f"{re.sub(r'[^a-zA-Z0-9]+', '_', name).strip('_')}.ply"
    return file, f"# {name}: save its points as {file} first\n"


def table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><td style="color:#888;padding-right:.8em">{escape(what)}</td><td>{escape(value)}</td></tr>'
        for what, value in rows
    )
    return f'<table style="{BOX}border-spacing:0">{cells}</table>'


def bars(values: Sequence[float], part: int) -> str:
    """A feature as bars to the left (negative) or right of the middle, in the colour of its part."""
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
    return f'<div style="{BOX}">{"".join(lines)}</div>'


def state_panel(values: Mapping[str, Any]) -> str:
    """The state of the page, for debugging and for tests."""
    text = escape(json.dumps(values, ensure_ascii=False))
    return f'<pre id="geocaps-state" style="{BOX}white-space:pre-wrap;word-break:break-all">{text}</pre>'


def css_color(rgb: np.ndarray) -> str:
    red, green, blue = (round(255 * float(value)) for value in rgb)
    return f"rgb({red},{green},{blue})"
