"""``geocaps.export_onnx``: the whole encoder, for a fixed number of points, as one ONNX graph.

The graph does everything that ``Model.encode`` does, from points to poses in the user's units: stray points, canonical
order, normalisation, local frames, Algorithm 1, the looks of the object layer and the labels. Sparse computations, with
sizes that depend on the data, are replaced by dense ones (every point with every other and with every part), and
eigenvectors, for which ONNX has no operator, are computed by Jacobi rotations. Not in the graph: reading files, drawing
a fixed number of points from a larger cloud, decoding, and the paper's own variants with random starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from geocaps.apps.encode import Model, load, reliability
from geocaps.apps.encoding import ENCODED, encoded_columns
from geocaps.atomic import written_whole
from geocaps.data.synthetic import make_shape
from geocaps.errors import ExportError, MissingExtraError, UsageError
from geocaps.geometry.sampling import NEIGHBOUR, OFF_CENTRE, STRAY
from geocaps.geometry.se3 import Pose, normalize_quaternion
from geocaps.io.save import check_target
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.capsules import Parts
from geocaps.model.config import ObjectConfig
from geocaps.model.parts import log_likelihood

TOLERANCE = 1e-4
"""The largest difference between the graph and ``Model.encode`` that is accepted, relative to each output's size."""
_PROBES = ("chair", "mug", "airplane")
_SWEEPS, _PLANES = 5, ((0, 1), (0, 2), (1, 2))
_KEEP = 1e-6  # routing below this is left out, as in the model


@dataclass(frozen=True)
class Exported:
    """Result of ``export_onnx``."""

    out: Path
    points: int
    opset: int
    bytes: int
    difference: float
    """The largest difference from ``Model.encode`` on three embedded objects, relative to each output's size."""


def export_onnx(
    out: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    points: int | None = None,
) -> Exported:
    """Writes the encoder for clouds of exactly ``points`` points (default: as many as the model takes).

    The graph takes ``points`` ``[points, 3]`` float32 and returns the ``ENCODED`` columns, in the user's units. It is
    run in onnxruntime and compared with ``Model.encode`` before the file is kept.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("exporting to ONNX", "onnx") from error
    out = Path(out)
    check_target(out, (".onnx",))
    model = load(weights)
    config = model.config
    if config.parts.start != "frames" or not isinstance(config.object, ObjectConfig):
        raise ExportError(
            "only models of the preset cpu can be exported: the paper's random starts and its choice by reconstruction "
            "are not in the graph"
        )
    count = config.points if points is None else points
    if not config.parts.parts <= count <= config.points:
        raise UsageError(f"points must be {config.parts.parts} to {config.points} for this model, not {count}")
    try:
        with written_whole(out) as beside:
            opset = _write(DenseEncoder(model.network), count, beside)
            difference = _difference(model, count, beside)
            if not difference <= TOLERANCE:
                raise ExportError(f"the graph differs from the model by {difference:.2g}: {out} is not written")
    except OSError as error:
        raise ExportError(f"cannot write {out}: {error.strerror or error}") from error
    return Exported(out, count, opset, out.stat().st_size, difference)


# ── the dense encoder ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class DenseRouting:
    """R of all points and parts as one matrix, which :class:`geocaps.model.parts.Routing` has as a list."""

    weight: Float[Tensor, "1 j n"]

    def max_pool(
        self, embed: nn.Module, points: Float[Tensor, "1 n 3"], viewpoints: Pose
    ) -> Float[Tensor, "1 j k width"]:
        seen = viewpoints.observe(points[:, None, None])
        return (embed(seen) * self.weight[:, :, None, :, None]).amax(dim=-2)


def _dense_log_likelihood(
    points: Float[Tensor, "1 n 3"], surfaces: Float[Tensor, "1 j m 3"], log_sigma: Float[Tensor, "1 j"]
) -> Float[Tensor, "1 j n"]:
    """``b_ij`` of every point under every decoded surface."""
    square = (surfaces[:, :, :, None] - points[:, None, None]).square().sum(-1).amin(dim=2)
    return log_likelihood(square, log_sigma[..., None].expand_as(square))


def _dense_route(points: Tensor, surfaces: Tensor, log_sigma: Tensor) -> DenseRouting:
    """Lines 3–5 of Algorithm 1 for all pairs."""
    weight = torch.softmax(_dense_log_likelihood(points, surfaces, log_sigma), dim=1)
    return DenseRouting(torch.where(weight > _KEEP, weight, torch.zeros_like(weight)))


class DenseEncoder(nn.Module):
    """``Model.encode`` of one cloud with shapes that do not depend on the data, from the same trained networks."""

    def __init__(self, network: GeometricCapsuleAutoencoder) -> None:
        super().__init__()
        self.network = network

    def forward(self, points: Float[Tensor, "n 3"]) -> tuple[Tensor, ...]:
        """Points in the user's coordinates to the ``ENCODED`` columns."""
        exact = points.double()
        square = (exact[:, None] - exact).square().sum(dim=-1)
        near = _not_stray(square)
        kept = _canonical_order(exact, near)
        local = exact[kept]
        center = local.mean(dim=0)
        radius = (local - center).square().sum(dim=1).amax(dim=0).sqrt()
        scale = torch.where(radius > 0, radius, torch.ones_like(radius))
        local = (local - center) / scale
        # As in Model.encode: the network sees the cloud in its own frame, and its answers are rotated back.
        axes = _own_axes(local, torch.ones_like(near))
        local = (local @ axes.mT)[None]
        turn = Pose.from_rotation(axes.mT.float()[None], torch.zeros(1, 3))
        first = self.network.parts
        *_, last = first.iterate(local.float(), first.initial(local), router=_dense_route)
        assert isinstance(last.routing, DenseRouting)
        parse = self.network.parse_parts(Parts(last.capsules, last.routing.weight.mean(dim=-1))).turned(turn)
        parts = parse.parts
        assert parse.percept is not None
        reliable = torch.tensor([reliability(k + 1, self.network.config.points) for k in range(len(points))])
        log_sigma = first.decoder.log_sigma(parts.feature)
        own_points = ((exact - center) / scale).float()[None]
        labels = _dense_log_likelihood(own_points, first.decode(parts), log_sigma)[0].argmax(dim=0)
        columns = {
            "translation": parse.object.pose.translation[0].double() * scale + center,
            "wxyz": normalize_quaternion(parse.object.pose.wxyz[0].double()),
            "radius": parse.scale[0].double() * scale,
            "feature": parse.object.feature[0],
            "confidence": parse.probability.amax(dim=1)[0] * reliable[_different(square, near) - 1],
            "part_translation": parts.pose.translation[0].double() * scale + center,
            "part_wxyz": normalize_quaternion(parts.pose.wxyz[0].double()),
            "part_feature": parts.feature[0],
            "part_share": parse.share[0],
            "part_percept": parse.percept[0],
            "labels": torch.where(near, labels, torch.full_like(labels, -1)),
            "center": center,
            "scale": scale,
        }
        return tuple(columns[name] for name in ENCODED)


def _not_stray(square: Float64[Tensor, "n n"]) -> Bool[Tensor, "n"]:
    """``not_stray`` of :mod:`geocaps.geometry.sampling`, from all squared distances."""
    distance = torch.topk(square, NEIGHBOUR + 1, dim=1, largest=False).values[:, -1].sqrt()
    ascending = torch.sort(distance).values
    # The median of those that are not 0, as between copies of a point.
    last, zeros = len(distance) - 1, (distance == 0).sum()
    usual = (ascending[(zeros + last) // 2] + ascending[((zeros + last + 1) // 2).clamp(max=last)]) / 2
    return distance <= STRAY * usual


def _different(square: Float64[Tensor, "n n"], near: Bool[Tensor, "n"]) -> Int[Tensor, ""]:
    """The number of different points among those that are near."""
    earlier = torch.ones(square.shape, dtype=torch.bool).tril(-1)
    return (near & ~((square == 0) & earlier).any(dim=1)).sum()


def _canonical_order(points: Float64[Tensor, "n 3"], near: Bool[Tensor, "n"]) -> Int[Tensor, "n"]:
    """``canonical_order`` of the points that are near, spread over as many places as there are points."""
    count = near.sum()
    weight = near.to(points.dtype)[:, None]
    center = (points * weight).sum(dim=0) / count
    offset = points - center
    square = torch.where(near, offset.square().sum(dim=1), -1.0)
    off = square.amax(dim=0).sqrt() * (torch.tensor(OFF_CENTRE, dtype=points.dtype) @ _own_axes(offset, near))
    key = torch.where(near, (offset - off).square().sum(dim=1), torch.inf)
    place = torch.div(torch.arange(len(points)) * count, len(points), rounding_mode="floor")
    return torch.sort(key).indices[place]


def _own_axes(offset: Float64[Tensor, "n 3"], near: Bool[Tensor, "n"]) -> Float64[Tensor, "3 3"]:
    """The axes of ``OwnFrame`` of :mod:`geocaps.geometry.sampling`, of the points that are near; from the centroid."""
    square = torch.where(near, offset.square().sum(dim=1), -1.0)
    first = _unit(offset[square.argmax(dim=0)])
    beside = torch.where(near, square - (offset @ first).square(), -1.0)
    second = offset[beside.argmax(dim=0)]
    second = _unit(second - (second @ first) * first)
    return torch.stack([first, second, torch.linalg.cross(first, second)])


def _unit(vector: Float64[Tensor, "3"]) -> Float64[Tensor, "3"]:
    return vector / vector.square().sum().sqrt().clamp(min=1e-300)


# ── to ONNX ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def jacobi_eigh(matrix: Float[Tensor, "*batch 3 3"]) -> tuple[Float[Tensor, "*batch 3"], Float[Tensor, "*batch 3 3"]]:
    """Eigenvalues (ascending) and eigenvectors (columns) of symmetric 3 × 3 matrices, by cyclic Jacobi rotations.

    Entry by entry, because a graph of matrix products would be three times as long.
    """
    diagonal = list(torch.diagonal(matrix, dim1=-2, dim2=-1).unbind(-1))
    off = {(p, q): matrix[..., p, q] for p, q in _PLANES}
    vectors = list(torch.eye(3, dtype=matrix.dtype).expand_as(matrix).unbind(-1))
    for _ in range(_SWEEPS):
        for p, q in _PLANES:
            r = 3 - p - q
            entry, rp, rq = off[p, q], off[min(r, p), max(r, p)], off[min(r, q), max(r, q)]
            # The tangent of the smaller angle that makes the entry zero; an entry that is zero needs no turn.
            gap = diagonal[q] - diagonal[p]
            root = (gap.square() + 4 * entry.square()).sqrt()
            tangent = 2 * entry / (gap + torch.where(gap < 0, -root, root) + 1e-300)
            cosine = (tangent.square() + 1).rsqrt()
            sine = tangent * cosine
            diagonal[p], diagonal[q] = diagonal[p] - tangent * entry, diagonal[q] + tangent * entry
            off[p, q] = torch.zeros_like(entry)
            off[min(r, p), max(r, p)], off[min(r, q), max(r, q)] = cosine * rp - sine * rq, sine * rp + cosine * rq
            c, s = cosine[..., None], sine[..., None]
            vectors[p], vectors[q] = c * vectors[p] - s * vectors[q], s * vectors[p] + c * vectors[q]
    values, order = torch.sort(torch.stack(diagonal, dim=-1), dim=-1)
    found = torch.stack(vectors, dim=-1)
    return values, torch.gather(found, -1, order[..., None, :].expand_as(found))


def _kthvalue(values: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    smallest, index = torch.topk(values, k, dim=dim, largest=False, sorted=True)
    last = smallest.narrow(dim, k - 1, 1), index.narrow(dim, k - 1, 1)
    return last if keepdim else (last[0].squeeze(dim), last[1].squeeze(dim))


_REPLACED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._linalg_eigh.default: lambda matrix, upper="L", compute_v=True: jacobi_eigh(matrix),
    torch.ops.aten.kthvalue.default: _kthvalue,
    torch.ops.aten.copy.default: lambda target, source, non_blocking=False: (
        source.to(target.dtype).expand_as(target).clone()
    ),
}
"""Operators that ONNX lacks (or, for copy, has only without broadcasting), in terms of others."""


@torch.no_grad()
def _write(encoder: DenseEncoder, count: int, place: Path) -> int:
    example = (torch.from_numpy(_probe(_PROBES[0], count)),)
    program = torch.export.export(encoder.eval(), example, strict=False)
    table = torch.export.default_decompositions()
    table.update(_REPLACED)
    program = program.run_decompositions(table)
    names = {"input_names": ["points"], "output_names": list(ENCODED)}
    # Not optimised here, which would take many minutes; onnxruntime does it on loading.
    graph = torch.onnx.export(program, example, **names, dynamo=True, verbose=False, optimize=False)  # type: ignore[arg-type]
    assert graph is not None
    graph.save(place, external_data=False)
    return int(graph.model.opset_imports[""])


def _probe(name: str, count: int) -> Float[np.ndarray, "n 3"]:
    """A cloud for tracing and comparison, away from the origin and in its own units."""
    drawn = make_shape(name, 0).sample(count, torch.Generator().manual_seed(0)).points
    return (drawn * 3 + torch.tensor([1.0, -2.0, 0.5])).numpy()


def _difference(model: Model, count: int, place: Path) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(place, providers=["CPUExecutionProvider"])
    worst = 0.0
    for name in _PROBES:
        cloud = _probe(name, count)
        found = dict(zip(ENCODED, session.run(None, {"points": cloud}), strict=True))
        for key, expected in encoded_columns(model.encode(cloud)).items():
            if key == "labels":
                continue  # a point on a border may fall to either side
            size = max(1.0, float(np.abs(expected).max()))
            worst = max(worst, float(np.abs(found[key] - expected).max()) / size)
    return worst
