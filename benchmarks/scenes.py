"""Objects of composed scenes: what is found and told apart, recognised and posed; beside DBSCAN and connected pieces.

    python benchmarks/scenes.py --scenes 30

Scenes are `geocaps.data.scenes.scene`: two to eight objects of the generator's catalogue on a floor, some touching,
scanned from one to three sides. An object is found if the intersection of a result with it is half of their union;
touching is one that has points as near to those of another object as connected ones are. Recognition is the first hit
of an index of the catalogue, the same for all methods; posed is within 15 degrees modulo the object's rotational
symmetry. Both are shares of all objects. `geocaps, not routed` gets no index while it takes a scene apart. DBSCAN
(Open3D's) runs at each of several radii, and its row is the best of them by the adjusted Rand index. Needs the extras
`baselines` and `index`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

import geocaps
from geocaps.apps.locate.segments import components
from geocaps.apps.planes import spacing_of
from geocaps.apps.scene import MINIMUM_POINTS, _supports, parse_scene
from geocaps.data.scenes import FLOOR, Member, Scene, furnishings, scene
from geocaps.evaluation.tracking import symmetries

RADII = (1.5, 2.0, 2.5, 3.0, 4.0, 6.0)  # of DBSCAN, in spacings
CUT = "geocaps, not routed"
POSED = 15.0
NEAR = 2.5  # spacings between points of objects that touch
LEAST = 0.002  # share of the scan that a piece needs to count as an object


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="number of the first scene")
    parser.add_argument("--points", type=int, default=40000)
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, list[dict[str, float]]] = {}
    kept: list[tuple[Scene, dict[str, np.ndarray]]] = []
    with tempfile.TemporaryDirectory() as folder:
        index = catalogue(Path(folder))
        for number in range(options.first, options.first + options.scenes):
            made = scene(number, points=options.points)
            started = time.process_time()
            parsed = parse_scene(made.points, index, model=index.model, viewer=made.viewers)
            seconds = time.process_time() - started
            spacing = spacing_of(made.points)
            cut = parse_scene(made.points, model=index.model, viewer=made.viewers)
            labels = {"geocaps": parsed.labels, CUT: cut.labels, "pieces": pieces(made.points, spacing)}
            labels |= {f"dbscan {radius:g}": dbscan(made.points, radius * spacing, spacing) for radius in RADII}
            for name, found in labels.items():
                rows.setdefault(name, []).append(measured(made, found)[0])
            rows["geocaps"][-1]["seconds"] = seconds
            kept.append((made, labels))
        best = max((name for name in rows if name.startswith("dbscan")), key=lambda name: mean(rows[name], "rand"))
        names = ("geocaps", CUT, "pieces", best)
        recognise(index, kept, {name: rows[name] for name in names})
    report({name: rows[name] for name in names})
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


def catalogue(folder: Path) -> Any:
    index = geocaps.Index(folder / "catalogue.lance")
    for number, shape in enumerate(furnishings()):
        np.save(folder / f"{number}.npy", shape.sample(4096, torch.Generator().manual_seed(0)).points.numpy())
    index.add([folder / f"{number}.npy" for number in range(len(furnishings()))])
    return index


def pieces(points: np.ndarray, spacing: float) -> np.ndarray:
    free, labels = off_planes(points, spacing)
    labels[free] = components(points[free], 2.5 * spacing)
    return large(labels)


def dbscan(points: np.ndarray, radius: float, spacing: float) -> np.ndarray:
    import open3d

    free, labels = off_planes(points, spacing)
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points[free]))
    labels[free] = np.asarray(cloud.cluster_dbscan(radius, 6))
    return large(labels)


def off_planes(points: np.ndarray, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    planes = _supports(points, spacing)
    on = np.any([one.on for one in planes], axis=0) if planes else np.zeros(len(points), dtype=bool)
    return np.flatnonzero(~on), np.full(len(points), -1)


def large(labels: np.ndarray) -> np.ndarray:
    count = np.bincount(labels[labels >= 0], minlength=1)
    keep = count >= max(LEAST * len(labels), MINIMUM_POINTS)
    return np.where((labels >= 0) & keep[labels.clip(0)], labels, -1)


def measured(made: Scene, labels: np.ndarray) -> tuple[dict[str, float], list[tuple[np.ndarray, int]]]:
    """Figures of one scene, and the results that are objects, with the places of these in the scene."""
    found = [np.flatnonzero(labels == one) for one in np.unique(labels[labels >= 0])]
    true = [np.flatnonzero(made.instance == one) for one in range(len(made.members))]
    seen = [place for place, own in enumerate(true) if len(own) >= MINIMUM_POINTS]
    overlap = np.zeros((len(found), len(seen)))
    for i, a in enumerate(found):
        for j, place in enumerate(seen):
            both = len(np.intersect1d(a, true[place], assume_unique=True))
            overlap[i, j] = both / (len(a) + len(true[place]) - both)
    pairs = [(i, j) for i, j in zip(*linear_sum_assignment(-overlap), strict=True) if overlap[i, j] >= 0.5]
    row: dict[str, float] = {"found": len(found), "true": len(seen), "matched": len(pairs)}
    on_object = made.instance != FLOOR
    touching = touched(made, seen)
    row["touching"] = int(touching.sum())
    row["matched_touching"] = sum(int(touching[j]) for _, j in pairs)
    row["rand"] = adjusted_rand(made.instance[on_object], labels[on_object])
    return row, [(found[i], seen[j]) for i, j in pairs]


def touched(made: Scene, places: list[int]) -> np.ndarray:
    """Which of these objects have points beside those of another one."""
    on_object = np.flatnonzero(made.instance != FLOOR)
    near = cKDTree(made.points[on_object]).query_pairs(NEAR * spacing_of(made.points), output_type="ndarray")
    pairs = made.instance[on_object[near]]
    return np.isin(places, pairs[pairs[:, 0] != pairs[:, 1]])


def recognise(
    index: Any, kept: list[tuple[Scene, dict[str, np.ndarray]]], rows: dict[str, list[dict[str, float]]]
) -> None:
    """Adds how many objects are recognised and posed to the rows; what several methods found is looked up once."""
    for place, (made, labels) in enumerate(kept):
        known: dict[bytes, tuple[bool, bool]] = {}
        for name, of in rows.items():
            right = []
            for points, number in measured(made, labels[name])[1]:
                key = points.tobytes()
                if key not in known:
                    known[key] = recognised(index.search(made.points[points], k=1)[0], made.members[number])
                right.append(known[key])
            of[place]["recognised"] = sum(one for one, _ in right)
            of[place]["posed"] = sum(one for _, one in right)


def recognised(hit: Any, member: Member) -> tuple[bool, bool]:
    """Whether a hit is the right object of the catalogue, and whether it is in the right orientation as well."""
    if furnishings()[int(Path(hit.path).stem)] != member.shape:
        return False, False
    trace = float(np.einsum("sij,ij->s", member.pose.rotation @ symmetries(hit.points), hit.pose.rotation).max())
    return True, float(np.degrees(np.arccos(np.clip((trace - 1) / 2, -1, 1)))) <= POSED


def adjusted_rand(true: np.ndarray, found: np.ndarray) -> float:
    """Agreement of two partitions, 0 for chance and 1 for the same (Hubert and Arabie 1985)."""
    _, a = np.unique(true, return_inverse=True)
    _, b = np.unique(found, return_inverse=True)
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / pairs(np.array([len(true)]))
    return (both - expected) / max((rows + columns) / 2 - expected, 1e-12)


def mean(rows: list[dict[str, float]], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))


def report(rows: dict[str, list[dict[str, float]]]) -> None:
    print("| method | precision | recall | of touching ones | adjusted Rand | recognised | posed |")
    print("| --- |" + " ---: |" * 6)
    for name, of in rows.items():
        found, true, matched = (sum(row[key] for row in of) for key in ("found", "true", "matched"))
        touching = f"{sum(row['matched_touching'] for row in of)} of {sum(row['touching'] for row in of)}"
        named = [f"{sum(row[key] for row in of) / true:.1%}" for key in ("recognised", "posed")]
        cells = [f"{matched / max(found, 1):.1%}", f"{matched / true:.1%}", touching, f"{mean(of, 'rand'):.3f}", *named]
        print(f"| {name} | " + " | ".join(cells) + " |")
    seconds = [row["seconds"] for row in rows["geocaps"]]
    print(f"\n{len(seconds)} scenes; seconds of geocaps: median {np.median(seconds):.1f}, slowest {max(seconds):.1f}")


if __name__ == "__main__":
    main()
