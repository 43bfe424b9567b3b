"""``geocaps.parts`` and ``geocaps.complete``: an object's parts, or the whole object, as arrays, files and pictures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64, Int, UInt8

from geocaps.apps.clouds import Source
from geocaps.apps.encode import Model, encoding_of
from geocaps.apps.encoding import Encoding, PartCapsules
from geocaps.geometry.sampling import at_most
from geocaps.io.save import COLORED_MESH_SUFFIXES, Mesh, check_target, save_cloud, save_meshes, write_whole

_DRAWN, _PANEL = 4096, 600  # points that a panel of a picture shows at most, and pixels of each half of it


@dataclass(frozen=True, repr=False)
class Decomposition:
    """One object segmented into parts, in your coordinates and units. All arrays are in numpy."""

    name: str
    points: Float[np.ndarray, "n 3"]
    """Input points, in the given order (for a mesh: sampled from its surface)."""
    labels: Int[np.ndarray, "n"]
    """Part of each point; -1 for stray points."""
    capsules: PartCapsules
    """Pose and feature of each part."""
    surfaces: Float64[np.ndarray, "j m 3"]
    """Points of each part's decoded surface: a square grid."""
    triangles: Int[np.ndarray, "t 3"]
    """Triangles of one grid; the same for all parts."""
    colors: UInt8[np.ndarray, "j 3"]
    """Colour of each part, 0 to 255."""
    vertices: Float[np.ndarray, "v 3"] | None
    """Vertices of the mesh that was given; None for a cloud."""
    faces: Int[np.ndarray, "f 3"] | None
    """Triangles of the mesh that was given; None for a cloud."""
    face_labels: Int[np.ndarray, "f"] | None
    """Part of each face of the mesh, taken at its centre; None for a cloud."""
    encoding: Encoding
    """The encoding of the object."""
    dropped: int = 0
    """Points (of a mesh: vertices) that were NaN or infinite, and were left out."""

    def __len__(self) -> int:
        return len(self.surfaces)

    def __repr__(self) -> str:
        return f"Decomposition({self.name}: {len(self.points):,} points in {len(self)} parts, {self.counts.tolist()})"

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import page

        return page(self, self.png())

    @property
    def counts(self) -> Int[np.ndarray, "j"]:
        """Number of points in each part, not counting stray points."""
        return self._counts(self.labels)

    @property
    def canonical_labels(self) -> Int[np.ndarray, "n"]:
        """Part of each point by the canonical decomposition, in which part j means the same in every object."""
        return self.encoding.canonical_labels

    @property
    def canonical_counts(self) -> Int[np.ndarray, "j"]:
        """Number of points in each part of the canonical decomposition."""
        return self._counts(self.canonical_labels)

    def _counts(self, labels: Int[np.ndarray, "n"]) -> Int[np.ndarray, "j"]:
        return np.bincount(labels[labels >= 0], minlength=len(self))

    def save(self, path: str | os.PathLike[str], *, canonical: bool = False) -> None:
        """Writes the object, coloured by part or, with ``canonical``, by canonical part; stray points are grey.

        A mesh stays a mesh with coloured faces in PLY, OBJ and GLB (with one object ``part_NN`` per part in the last
        two). A cloud is written as PLY, GLB, XYZ, NPZ or PCD, and so are the points sampled from a mesh in the last
        three formats; all but GLB also hold the labels of the points.
        """
        from geocaps.apps.drawing import label_colors

        suffix = Path(path).suffix.lower()
        if (
            self.vertices is None
            or self.faces is None
            or self.face_labels is None
            or suffix not in COLORED_MESH_SUFFIXES
        ):
            labels = self.canonical_labels if canonical else self.labels
            save_cloud(path, self.points, labels=labels, colors=_bytes(label_colors(labels, len(self))))
            return
        face_labels = self.face_labels
        if canonical:
            face_labels = self.encoding.part_of(_centers(self.vertices, self.faces), canonical=True)
        if suffix == ".ply":
            colors = self.colors[face_labels]
            save_meshes(path, [Mesh(Path(self.name).stem, self.vertices, self.faces, face_colors=colors)])
            return
        pieces = []
        for j in np.unique(face_labels).tolist():
            # A vertex where two parts meet has a colour in each.
            used, corners = np.unique(self.faces[face_labels == j], return_inverse=True)
            pieces.append(Mesh(f"part_{j:02d}", self.vertices[used], corners.reshape(-1, 3), self.colors[j]))
        save_meshes(path, pieces)

    def save_surfaces(self, path: str | os.PathLike[str]) -> None:
        """Writes the decoded surfaces as coloured meshes: separate ones in GLB and OBJ, a single one in PLY."""
        check_target(Path(path), COLORED_MESH_SUFFIXES)
        colored = zip(self.surfaces, self.colors, strict=True)
        save_meshes(path, [Mesh(f"part_{j:02d}", one, self.triangles, color) for j, (one, color) in enumerate(colored)])

    def png(self, *, canonical: bool = False) -> bytes:
        """Draws the points, coloured by part, beside the surfaces that the parts (or the object) decode to.

        With ``canonical``, parts are those of the canonical decomposition.
        """
        from geocaps.apps.drawing import STRAY_COLOR, Grid, draw_points, draw_surfaces, label_colors

        labels = self.canonical_labels if canonical else self.labels
        surfaces = self.encoding.reconstruct("object").points if canonical else self.surfaces
        shown = at_most(_DRAWN, len(self.points))
        grid = Grid(1, 2, panel=_PANEL, same_scale=True)
        name, count = Path(self.name).name, len(np.unique(labels[labels >= 0]))
        points = grid.panel(0, 0, f"{name}: {len(self.points):,} points in {count} parts")
        draw_points(points, self.points[shown], label_colors(labels[shown], len(self)))
        source = "the object capsule decodes" if canonical else f"the {len(self)} part capsules decode"
        decoded = grid.panel(0, 1, f"surfaces that {source} to")
        draw_surfaces(decoded, surfaces, self.triangles, self.colors / 255)
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        size = " × ".join(f"{one:.3g}" for one in high - low)
        strays = {"stray points": STRAY_COLOR} if (labels < 0).any() else {}
        grid.caption(f"One colour for each part, the same in both pictures. Size: {size}, in the file's units.", strays)
        return grid.png()

    def save_png(self, path: str | os.PathLike[str], *, canonical: bool = False) -> None:
        """Writes that picture."""
        check_target(Path(path), (".png",))
        write_whole(Path(path), self.png(canonical=canonical))


def parts(source: Source | Encoding, model: Model | None = None, *, drop_invalid: bool = False) -> Decomposition:
    """Segments one object into parts: an array or tensor ``[N, 3]``, a path, a trimesh, or the encoding of one.

    Without a ``model`` the weights that ship with the package are used. ``drop_invalid`` leaves out points that are NaN
    or infinite, which are refused otherwise.
    """
    from geocaps.apps.drawing import part_colors

    encoding = encoding_of(source, model, drop_invalid=drop_invalid)
    cloud, surface = encoding.cloud, encoding.reconstruct("parts")
    vertices, faces, face_labels = cloud.vertices, cloud.faces, None
    if vertices is not None and faces is not None:
        face_labels = encoding.part_of(_centers(vertices, faces))
    return Decomposition(
        name=cloud.name,
        points=cloud.points,
        labels=encoding.labels,
        capsules=encoding.parts,
        surfaces=surface.points,
        triangles=surface.triangles,
        colors=_bytes(part_colors(len(encoding.parts))),
        vertices=vertices,
        faces=faces,
        face_labels=face_labels,
        encoding=encoding,
        dropped=cloud.dropped,
    )


def _centers(vertices: Float[np.ndarray, "v 3"], faces: Int[np.ndarray, "f 3"]) -> Float64[np.ndarray, "f 3"]:
    return vertices[faces].mean(axis=1, dtype=np.float64)


def _bytes(colors: Float64[np.ndarray, "n 3"]) -> UInt8[np.ndarray, "n 3"]:
    return np.rint(255 * colors).astype(np.uint8)


# ── the whole object behind a partial cloud ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, repr=False)
class Completion:
    """A completed object, in the coordinates and units of the given cloud. All arrays are in numpy."""

    name: str
    given: Float[np.ndarray, "n 3"]
    """Points as given (for a mesh: sampled from its surface)."""
    points: Float64[np.ndarray, "m 3"]
    """Points of the whole object, decoded from its capsule."""
    center: Float64[np.ndarray, "3"]
    """Centre of the whole object."""
    radius: float
    """Radius of the whole object."""
    confidence: float
    """Confidence in the pose, from 0 to 1."""
    ambiguous: bool
    """Whether another pose is nearly as probable."""
    dropped: int = 0
    """Points (of a mesh: vertices) that were NaN or infinite, and were left out."""

    def __repr__(self) -> str:
        return (
            f"Completion({self.name}: {len(self.given):,} points to {len(self.points):,}, radius {self.radius:.4g}, "
            f"confidence {self.confidence:.2f})"
        )

    def _repr_html_(self) -> str:
        from geocaps.apps.drawing import page

        return page(self, self.png())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the points of the whole object as PLY, GLB, XYZ, NPY, NPZ or PCD."""
        save_cloud(path, self.points)

    def png(self) -> bytes:
        """Draws the cloud as given beside the whole object."""
        from geocaps.apps.drawing import BLUE, ORANGE, Grid, draw_points

        given, whole = (one[at_most(_DRAWN, len(one))] for one in (self.given, self.points))
        grid = Grid(1, 3, panel=400, same_scale=True)
        draw_points(grid.panel(0, 0, f"{Path(self.name).name}, as given"), given, ORANGE)
        draw_points(grid.panel(0, 1, "the whole object, as its capsule decodes it"), whole)
        both = grid.panel(0, 2, "both")
        draw_points(both, whole, pale=True)
        draw_points(both, given, ORANGE)
        grid.caption(
            f"Radius of the whole object: {self.radius:.3g}, in the file's units. Confidence {self.confidence:.2f}.",
            {"given": ORANGE, "decoded": BLUE},
        )
        return grid.png()

    def save_png(self, path: str | os.PathLike[str]) -> None:
        """Writes that picture."""
        check_target(Path(path), (".png",))
        write_whole(Path(path), self.png())


def complete(source: Source | Encoding, model: Model | None = None, *, drop_invalid: bool = False) -> Completion:
    """Completes one partial object: an array or tensor ``[N, 3]``, a path, a trimesh, or the encoding of one.

    Without a ``model`` the weights that ship with the package are used. ``drop_invalid`` leaves out points that are NaN
    or infinite, which are refused otherwise.
    """
    encoding = encoding_of(source, model, drop_invalid=drop_invalid)
    return Completion(
        name=encoding.cloud.name,
        given=encoding.cloud.points,
        points=encoding.complete(),
        center=encoding.pose.translation,
        radius=encoding.radius,
        confidence=encoding.confidence,
        ambiguous=encoding.ambiguous,
        dropped=encoding.cloud.dropped,
    )
