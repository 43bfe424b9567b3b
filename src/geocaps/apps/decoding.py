"""Decoded capsules, from the network's values or from a file: surfaces, and the part of each point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int

from geocaps.geometry.sampling import not_stray, reduced
from geocaps.geometry.similarity import Similarity
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.blocks import grid_triangles
from geocaps.model.capsules import Capsules, Parse
from geocaps.model.parts import log_likelihood, min_square_distance

_LABEL_BLOCK = 1 << 14


@dataclass(frozen=True)
class Surface:
    """Part surfaces in your coordinates: a square grid of points for each part, and the triangles of one grid."""

    points: Float64[np.ndarray, "j m 3"]
    triangles: Int[np.ndarray, "t 3"]


@dataclass(frozen=True)
class Parsed:
    """The network's values for one object ``[1, ...]``, decoded on demand."""

    network: GeometricCapsuleAutoencoder
    parse: Parse
    normalization: Similarity

    def labels(self, points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
        """The part of each point of the cloud, -1 for stray points."""
        return np.where(not_stray(points), self.part_of(points), -1)

    def canonical_labels(self, points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
        """The same by the canonical decomposition."""
        return np.where(not_stray(points), self.canonical_part_of(points, points), -1)

    def canonical_part_of(
        self, points: Float[np.ndarray, "m 3"], cloud: Float[np.ndarray, "n 3"]
    ) -> Int[np.ndarray, "m"]:
        """The part of the canonical decomposition of ``cloud`` that explains each point best."""
        whole = self.normalization @ Similarity(
            np.eye(3), self.parse.object.pose.translation[0].double().numpy(), float(self.parse.scale)
        )
        local = (reduced(cloud, self.network.config.points) - self.normalization.translation) / self.normalization.scale
        parts = self.network.decomposition(torch.from_numpy(local.astype(np.float32))[None], self.parse).capsules
        return self._nearest_part(points, parts, whole)

    def part_of(self, points: Float[np.ndarray, "n 3"]) -> Int[np.ndarray, "n"]:
        """The part that explains each point best."""
        return self._nearest_part(points, self.parse.parts, self.normalization)

    @torch.no_grad()
    def _nearest_part(self, points: Float[np.ndarray, "n 3"], parts: Capsules, own: Similarity) -> Int[np.ndarray, "n"]:
        """For part capsules ``[1, j]`` in the frame ``own``; in blocks, to limit memory."""
        first = self.network.parts
        surfaces = first.decode(parts)
        log_sigma = first.decoder.log_sigma(parts.feature)[..., None]
        blocks = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(points), _LABEL_BLOCK):
            local = (points[start : start + _LABEL_BLOCK].astype(np.float64) - own.translation) / own.scale
            square = min_square_distance(torch.from_numpy(local.astype(np.float32))[None], surfaces)
            blocks.append(log_likelihood(square, log_sigma.expand_as(square))[0].argmax(dim=0).numpy())
        return np.concatenate(blocks)

    @torch.no_grad()
    def surface(self, layer: str) -> Surface:
        network = self.network
        decoded = network.parts.decode(self.parse.parts) if layer == "parts" else network.reconstruct(self.parse)
        points = self.normalization.apply(decoded[0].numpy())
        return Surface(points, grid_triangles(round(points.shape[-2] ** 0.5)).numpy())


@dataclass(frozen=True)
class Stored:
    """Decoded values of one object, as stored in a file."""

    labels: Int[np.ndarray, "n"]
    canonical_labels: Int[np.ndarray, "n"]
    surfaces: Mapping[str, Surface]

    def surface(self, layer: str) -> Surface:
        return self.surfaces[layer]
