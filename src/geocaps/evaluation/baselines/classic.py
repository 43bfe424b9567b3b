"""Alignment by principal axes and ICP: numpy, scipy and trimesh only."""

from __future__ import annotations

import itertools

import numpy as np
import trimesh
from jaxtyping import Float64
from scipy.spatial import cKDTree

Cloud = Float64[np.ndarray, "_ 3"]
Rotation = Float64[np.ndarray, "3 3"]

ICP_ITERATIONS = 50
ICP_TOLERANCE = 1e-8
_TINY = 1e-4

PROPER_FLIPS = np.array([np.diag(s) for s in itertools.product((1.0, -1.0), repeat=3) if np.prod(s) > 0])
"""The four sign choices of three axes that keep a frame right-handed."""


def principal_frame(points: Cloud) -> Rotation:
    """Columns: axes of decreasing variance, right-handed; their signs are whatever the eigensolver says."""
    centered = points - points.mean(axis=0)
    axes = np.linalg.eigh(centered.T @ centered)[1][:, ::-1].copy()
    axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
    return axes


def pca(first: Cloud, second: Cloud) -> Rotation:
    """Principal frame to principal frame."""
    return principal_frame(second) @ principal_frame(first).T


def pca_flips(first: Cloud, second: Cloud) -> Rotation:
    """The same, with the sign choice of least Chamfer distance between the centred clouds."""
    first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    frame_first, frame_second = principal_frame(first), principal_frame(second)
    rotations = [frame_second @ flip @ frame_first.T for flip in PROPER_FLIPS]
    tree = cKDTree(second)
    return min(rotations, key=lambda rotation: _chamfer(first @ rotation.T, second, tree))


def pca_icp(first: Cloud, second: Cloud) -> Rotation:
    """The same, then ICP."""
    return refine(first, second, pca_flips(first, second))


def trimesh_register(first: Cloud, second: Cloud) -> Rotation:
    """``trimesh.registration.mesh_other`` (what ``mesh.register`` calls), without mirrored answers.

    It takes a mesh, so each point of the first view becomes a tiny triangle; and its sign flips are about the world's
    axes, so that view stands in its principal frame first. Without both it is far worse.
    """
    frame = principal_frame(first)
    corners = ((first - first.mean(axis=0)) @ frame)[:, None] + _TINY * np.eye(3)
    faces = np.arange(3 * len(first)).reshape(-1, 3)
    mesh = trimesh.Trimesh(corners.reshape(-1, 3), faces, process=False)
    matrix = trimesh.registration.mesh_other(mesh, second, reflection=False)[0]
    return matrix[:3, :3] @ frame.T


def refine(first: Cloud, second: Cloud, rotation: Rotation) -> Rotation:
    """Point-to-point ICP (trimesh) from a rotation about the centroids.

    The second view moves onto the first: it may be a part of it, and each of its points then has a partner.
    """
    start = np.eye(4)
    start[:3, :3] = rotation.T
    start[:3, 3] = first.mean(axis=0) - rotation.T @ second.mean(axis=0)
    return refine_pose(first, second, start)


def refine_pose(first: Cloud, second: Cloud, T_first_second: Float64[np.ndarray, "4 4"]) -> Rotation:
    """The same from a whole pose; returns the rotation from the first view to the second."""
    matrix = trimesh.registration.icp(
        second,
        first,
        initial=T_first_second,
        threshold=ICP_TOLERANCE,
        max_iterations=ICP_ITERATIONS,
        reflection=False,
        scale=False,
    )[0]
    return matrix[:3, :3].T


def _chamfer(moved: Cloud, second: Cloud, tree: cKDTree) -> float:
    return float((tree.query(moved)[0] ** 2).mean() + (cKDTree(moved).query(second)[0] ** 2).mean())
