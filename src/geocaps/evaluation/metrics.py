"""Metrics: rotation errors, frames, retrieval, spread of rotations, agreement of partitions, and chance levels.

All random draws have a fixed seed, so every figure is reproducible to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from scipy.integrate import trapezoid
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

from geocaps.geometry.se3 import Pose
from geocaps.model.losses import late_interaction
from geocaps.training.validation import modulo_signs

RIGHT_DEGREES = 15
"""An answer within this angle of the other cloud's is right."""
SURE = 0.9
WITHIN_DEGREES = (5, 15, 30)
BOOTSTRAP = 1000
_RETRIEVED = 10

Summary = dict[str, Any]
"""Figures by name, each a float or None; ``NAME_ci`` is the 95 % interval of ``NAME``, None for a single value."""


# ── intervals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def bootstrap_interval(values: Float[np.ndarray, "n"]) -> list[float] | None:
    """The 95 % percentile bootstrap interval of the mean over objects; None for a single value."""
    if len(values) < 2:
        return None
    picks = np.random.default_rng(0).integers(len(values), size=(BOOTSTRAP, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), [2.5, 97.5])
    return [float(low), float(high)]


def means(columns: Mapping[str, Shaped[np.ndarray, "n"]]) -> Summary:
    """The mean of each column and its ``_ci`` interval; an empty column has neither."""
    found: Summary = {}
    for name, column in columns.items():
        values = column.astype(np.float64)
        found[name] = _mean(values)
        found[f"{name}_ci"] = bootstrap_interval(values)
    return found


def _mean(values: Shaped[np.ndarray, "n"]) -> float | None:
    return float(values.mean()) if len(values) else None


# ── rotation ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def alignment_summary(errors: Float[np.ndarray, "n"]) -> Summary:
    """Mean and median rotation error (angle/π, in [0, 1]) and the share within 5, 15 and 30 degrees."""
    columns = {"rae_mean": errors}
    columns |= {f"within_{degrees}": errors * 180 <= degrees for degrees in WITHIN_DEGREES}
    summary = means(columns)
    summary["rae_median"] = float(np.median(errors)) if len(errors) else None
    return summary


def sign_summary(left: Pose, principal: Pose) -> Summary:
    """Errors modulo the signs of the axes, which a mean angle hides: the axes may be right and their signs wrong.

    ``left [n]`` are the residual rotations, in the canonical frame; ``principal`` are the objects' principal axes in
    that frame. ``right_signs`` is the share of objects for which none of the four proper sign changes of the canonical
    axes would reduce the error. ``modulo_signs`` is the mean angle/π after the best sign change,
    ``within_15_modulo_signs`` the share within 15° after it, and ``modulo_principal_signs`` the mean after the best
    sign change of the principal axes.
    """
    errors = modulo_signs(left).double().numpy()
    on_principal = modulo_signs(principal.inverse() @ left @ principal).double().numpy()
    return means(
        {
            "right_signs": (left.wxyz.abs().argmax(dim=-1) == 0).numpy(),
            "modulo_signs": errors,
            f"within_{RIGHT_DEGREES}_modulo_signs": errors * 180 <= RIGHT_DEGREES,
            "modulo_principal_signs": on_principal,
        }
    )


@cache
def chance_modulo_signs(draws: int = 100_000, seed: int = 0) -> float:
    """The mean ``modulo_signs`` of uniformly random rotations, by simulation."""
    guesses = Pose.random(draws, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return float(modulo_signs(guesses).mean())


def calibration(confidence: Float[np.ndarray, "n"], errors: Shaped[np.ndarray, "n"]) -> Summary:
    """How often answers of a given confidence are right, that is, within 15° of the other cloud's.

    ``sure`` is the share of answers with a confidence of at least 0.9, ``right_when_sure`` the share of these that are
    right, and ``reliability`` lists ten bins: mean confidence, share right, number of answers. ``answers`` and
    ``answers_sure`` are the counts behind these shares.
    """
    right = errors * 180 <= RIGHT_DEGREES
    sure = confidence >= SURE
    bins = np.minimum((confidence * 10).astype(int), 9)
    rows = [
        {"confidence": float(confidence[at].mean()), "right": float(right[at].mean()), "answers": int(at.sum())}
        for at in (bins == number for number in range(10))
        if at.any()
    ]
    shares = {"sure": _mean(sure), "right_when_sure": _mean(right[sure]), "reliability": rows}
    return shares | {"answers": len(sure), "answers_sure": int(sure.sum())}


def pair_calibration(confidence: Float[np.ndarray, "n 2"], errors: Shaped[np.ndarray, "n"]) -> Summary:
    """The same for pairs: how many have two sure answers, and how many of these are within 15° of each other.

    In :func:`calibration`, an intact cloud that is rightly sure counts as wrong if the other, corrupted one is wrong,
    even if that one is unsure. Here a pair counts only if both of its clouds are sure.
    """
    right, sure = errors * 180 <= RIGHT_DEGREES, confidence.min(axis=1) >= SURE
    shares = {"sure_pairs": _mean(sure), "right_when_pair_sure": _mean(right[sure])}
    return shares | {"pairs": len(sure), "pairs_sure": int(sure.sum())}


def _share_within(angle: Any) -> Any:
    """F(θ) = (θ - sin θ)/π, the share of uniformly random rotations with an angle of at most θ."""
    return (angle - np.sin(angle)) / math.pi


def best_of_random_rae(trials: int) -> float:
    """The error of an oracle that keeps the best of ``trials`` random guesses: ∫ (1 - F(θ))ⁿ dθ / π."""
    angles = np.linspace(0.0, math.pi, 20_001)
    return float(trapezoid((1 - _share_within(angles)) ** trials, angles)) / math.pi


def alignment_chance(rotation: str, trials: int = 1) -> Summary:
    """Chance: a random rotation, the identity under this distribution, and the oracle best of ``trials``."""
    random = {f"within_{degrees}": float(_share_within(math.radians(degrees))) for degrees in WITHIN_DEGREES}
    if rotation == "uniform":
        identity = random | {"rae_mean": best_of_random_rae(1)}
    else:
        identity = {f"within_{degrees}": degrees / 180 for degrees in WITHIN_DEGREES} | {"rae_mean": 0.5}
    chance: Summary = {"rae_random": best_of_random_rae(1), **random}
    chance |= {"rae_identity": identity.pop("rae_mean")} | {f"identity_{name}": x for name, x in identity.items()}
    if trials > 1:
        chance[f"rae_oracle_best_of_{trials}"] = best_of_random_rae(trials)
    return chance


def spread_degrees(rotations: Pose) -> float:
    """RMS angle of rotations ``[n]`` to their chordal mean, in degrees."""
    return _spread(rotations.wxyz.double().numpy())


def mean_angle_degrees(rotations: Pose) -> float:
    """Mean angle between rotations ``[n]``, over all pairs, in degrees; chance is 126.5°."""
    wxyz = rotations.wxyz.double().numpy()
    cosine = np.abs(wxyz @ wxyz.T)[np.triu_indices(len(wxyz), k=1)]
    return float(np.degrees(2 * np.arccos(np.minimum(cosine, 1.0))).mean())


@cache
def chance_spread_degrees(count: int) -> float:
    """The mean :func:`spread_degrees` of ``count`` uniformly random rotations, by simulation (200 draws)."""
    guesses = Pose.random(200, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return float(np.mean([_spread(wxyz) for wxyz in guesses.wxyz.numpy()]))


def _spread(wxyz: Float[np.ndarray, "n 4"]) -> float:
    rotations = Rotation.from_quat(wxyz[:, [1, 2, 3, 0]])
    angles = (rotations.mean().inv() * rotations).magnitude()
    return float(np.degrees(np.sqrt(np.mean(angles**2))))


# ── the whole object's centre and size ────────────────────────────────────────────────────────────────────────────────


def frame_errors(
    center: Float[np.ndarray, "n 3"],
    radius: Float[np.ndarray, "n"],
    true_center: Float[np.ndarray, "n 3"],
    true_radius: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "n 2"]:
    """Distance of each centre from the true one, in true radii, and the radius found over the true one."""
    return np.stack([np.linalg.norm(center - true_center, axis=1) / true_radius, radius / true_radius], axis=1)


def frame_summary(errors: Float[np.ndarray, "n 2"]) -> Summary:
    """Mean and median of the centre's error and of |radius / true radius - 1|, and the median ratio."""
    columns = {"center": errors[:, 0], "scale_error": np.abs(errors[:, 1] - 1)}
    found = means({f"{name}_mean": column for name, column in columns.items()})
    found |= {f"{name}_median": float(np.median(column)) for name, column in columns.items()}
    return found | {"scale_ratio_median": float(np.median(errors[:, 1]))}


# ── retrieval ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def feature_distances(queries: Float[Tensor, "q d"], gallery: Float[Tensor, "g d"]) -> Float[np.ndarray, "q g"]:
    """L2, computed from differences: the product form would cancel for near duplicates."""
    return torch.cdist(queries, gallery, compute_mode="donot_use_mm_for_euclid_dist").double().numpy()


def percept_distances(
    queries: Float[Tensor, "q j d"], gallery: Float[Tensor, "g k d"], block: int = 32
) -> Float[np.ndarray, "q g"]:
    """Late interaction: 1 minus the mean, over the query's percepts, of the best cosine with the other object's.

    In blocks of ``block`` objects, because block² · j · k cosines stay in cache, which is twice as fast.
    """
    queries, gallery = (nn.functional.normalize(percepts, dim=-1) for percepts in (queries, gallery))
    rows = [
        torch.cat([late_interaction(some, others) for others in gallery.split(block)], dim=1)
        for some in queries.split(block)
    ]
    return 1 - torch.cat(rows).double().numpy()


def retrieval_ranks(distances: Float[np.ndarray, "n n"]) -> Int[np.ndarray, "n"]:
    """The rank of entry i for query i: how many other entries are at least as near to the query.

    A tie counts against the query, so features that are all equal retrieve nothing.
    """
    own = np.diagonal(distances)[:, None]
    return (distances <= own).sum(axis=1) - 1


def retrieval_hits(
    distances: Float[np.ndarray, "n n"], labels: Int[np.ndarray, "n"]
) -> dict[str, Bool[np.ndarray, "_"]]:
    """For each query: own instance first (``top1``), or among the first ten (``top10``); for labelled ones ``nn1``.

    ``nn1`` is the paper's 1-NN classification, with the query's own instance in the gallery.
    """
    ranks = retrieval_ranks(distances)
    labelled = labels >= 0
    nearest = distances.argmin(axis=1)
    return {"top1": ranks < 1, "top10": ranks < _RETRIEVED, "nn1": (labels[nearest] == labels)[labelled]}


def retrieval_summary(distances: Float[np.ndarray, "n n"], labels: Int[np.ndarray, "n"]) -> Summary:
    """``top1``, ``top10`` and ``nn1`` with intervals; ``nn1`` is None if there are labels of fewer than two classes."""
    hits = retrieval_hits(distances, labels)
    if len(np.unique(labels[labels >= 0])) < 2:
        hits["nn1"] = hits["nn1"][:0]
    return means(hits)


def retrieval_chance(labels: Int[np.ndarray, "n"]) -> Summary:
    """The retrieval figures of random answers among these objects."""
    labelled = labels[labels >= 0]
    counts = np.unique(labelled, return_counts=True)[1]
    same_class = float((counts / len(labelled)) @ (counts / len(labels))) if len(counts) > 1 else None
    return {"top1": 1 / len(labels), "top10": min(1.0, _RETRIEVED / len(labels)), "nn1": same_class}


# ── partitions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _contingency(first: Int[np.ndarray, "n"], second: Int[np.ndarray, "n"]) -> Int[np.ndarray, "a b"]:
    """Number of points with each pair of labels; labels that do not occur have no row."""
    rows, columns = np.unique(first, return_inverse=True)[1], np.unique(second, return_inverse=True)[1]
    table = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def _normalized_mutual_information(table: Int[np.ndarray, "a b"]) -> float:
    """NMI with the arithmetic mean of the entropies; 1 if both partitions are a single part."""
    joint = table / table.sum()
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    entropy = (_entropy(rows) + _entropy(columns)) / 2
    if entropy == 0:
        return 1.0
    return max(0.0, (_entropy(rows) + _entropy(columns) - _entropy(joint.ravel())) / entropy)


def adjusted_rand_index(first: Int[np.ndarray, "n"], second: Int[np.ndarray, "n"]) -> float:
    """Agreement of two labelings on which points belong together: 1 if complete, 0 if no better than chance."""
    table = _contingency(first, second)

    def pairs(counts: Int[np.ndarray, "*c"]) -> float:
        return float((counts * (counts - 1)).sum()) / 2

    both, one, other = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected, most = one * other / max(math.comb(len(first), 2), 1), (one + other) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def best_match_iou(table: Int[np.ndarray, "parts capsules"]) -> float:
    """Mean IoU of the true parts with their capsules, matched one to one by the Hungarian method."""
    union = table.sum(axis=1, keepdims=True) + table.sum(axis=0, keepdims=True) - table
    iou = table / union
    rows, columns = linear_sum_assignment(-iou)
    return float(iou[rows, columns].sum() / len(table))


def _merged_iou(table: Int[np.ndarray, "parts capsules"]) -> float:
    """Mean IoU after each capsule joins the true part it overlaps most: fair if there are more capsules than parts."""
    merged = np.zeros((len(table), len(table)), dtype=np.int64)
    np.add.at(merged.T, table.argmax(axis=0), table.T)
    union = merged.sum(axis=1) + merged.sum(axis=0) - np.diagonal(merged)
    return float((np.diagonal(merged) / union).mean())


def partition_agreement(truth: Int[np.ndarray, "n"], found: Int[np.ndarray, "n"]) -> dict[str, float]:
    """How well the parts found agree with the true ones."""
    table = _contingency(truth, found)
    return {
        "nmi": _normalized_mutual_information(table),
        "iou": best_match_iou(table),
        "iou_merged": _merged_iou(table),
    }


def _entropy(shares: Float[np.ndarray, "n"]) -> float:
    present = shares[shares > 0]
    return float(-(present * np.log(present)).sum())
