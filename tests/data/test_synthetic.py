"""The catalogue: every class over many seeds."""

import hashlib
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from geocaps.data.synthetic import ASYMMETRIC, CLASS_NAMES, Shape, make_shape
from geocaps.data.synthetic.solids import turn
from geocaps.errors import InvalidInputError
from tests.basic_shapes import BASIC, basic_shape


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chamfer(a: np.ndarray, b: np.ndarray) -> float:
    return float(cKDTree(a).query(b)[0].mean() + cKDTree(b).query(a)[0].mean()) / 2


@cache
def made(name: str, seed: int) -> Shape:
    return make_shape(name, seed)


def part(shape: Shape, name: str) -> torch.Tensor:
    sample = shape.sample(4000, seeded())
    return sample.points[sample.part_labels == shape.part_names.index(name)]


def test_there_are_enough_classes() -> None:
    assert len(CLASS_NAMES) >= 20
    assert {"bed", "chair", "sofa", "toilet", "monitor"} <= ASYMMETRIC < set(CLASS_NAMES)


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_samples_are_sound_over_many_seeds(name: str) -> None:
    for seed in range(12):
        shape = made(name, seed)
        sample = shape.sample(2048, seeded(seed))
        assert sample.points.dtype == sample.normals.dtype == torch.float32
        assert sample.part_labels.dtype == torch.int64
        assert torch.isfinite(sample.points).all()
        assert sample.points.norm(dim=1).max() <= 1.0
        assert sample.normals.norm(dim=1).sub(1).abs().max() < 1e-5
        assert sample.part_labels.min() >= 0
        assert sample.part_labels.max() < len(shape.part_names)
        assert (shape.class_name, shape.seed) == (name, seed)


@pytest.mark.parametrize("name", [*CLASS_NAMES, *BASIC])
def test_frame_belongs_to_the_surface(name: str) -> None:
    shape = basic_shape(name) if name in BASIC else made(name, 7)
    points = shape.sample(60_000, seeded()).points
    assert points.mean(dim=0).abs().max() < 0.01  # the area centroid is the origin
    assert 0.97 < points.norm(dim=1).max() <= 1.0


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_every_part_appears(name: str) -> None:
    for seed in range(6):
        shape = made(name, seed)
        assert len(shape.part_names) >= (1 if name == "bowl" else 2)
        labels = shape.sample(30_000, seeded()).part_labels
        assert labels.unique().tolist() == list(range(len(shape.part_names)))


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_same_seed_same_object_other_seed_other_object(name: str) -> None:
    first, again = (make_shape(name, 4).sample(1500, seeded(3)) for _ in range(2))
    assert torch.equal(first.points, again.points)
    assert torch.equal(first.normals, again.normals)
    assert torch.equal(first.part_labels, again.part_labels)
    resampled = made(name, 4).sample(1500, seeded(5)).points.numpy()
    noise = chamfer(first.points.numpy(), resampled)
    for other in (5, 6):
        assert chamfer(first.points.numpy(), made(name, other).sample(1500, seeded(3)).points.numpy()) > 1.1 * noise


def test_objects_are_the_same_on_every_machine() -> None:
    """A change of this digest means that every data set made of the embedded shapes has changed: bump it on purpose."""
    text = "".join(
        f"{name} {seed} {shape.part_names} {len(shape.surface.areas)} {shape.surface.areas.sum():.5f}\n"
        for name in CLASS_NAMES
        for seed in range(3)
        for shape in [made(name, seed)]
    )
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e729ab7dd6f0b5da"


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_samplings_share_no_points(name: str) -> None:
    shape, generator = made(name, 0), seeded()
    first, second = (shape.sample(2000, generator).points for _ in range(2))
    rows = {tuple(row) for row in first.tolist()}
    assert len(rows) == 2000
    assert not rows & {tuple(row) for row in second.tolist()}


@pytest.mark.parametrize("name", sorted(ASYMMETRIC))
def test_asymmetric_classes_have_no_rotational_symmetry(name: str) -> None:
    turns = [turn(axis, degrees) for axis, degrees in (("x", 180), ("y", 180), ("z", 180), ("y", 90), ("y", -90))]
    for seed in range(5):
        shape, generator = made(name, seed), seeded(seed)
        first, second = (shape.sample(2500, generator).points.numpy() for _ in range(2))
        noise = chamfer(first, second)
        assert min(chamfer(first, second @ matrix.T.astype(np.float32)) for matrix in turns) > 1.2 * noise, seed


@pytest.mark.parametrize(
    ("name", "axis", "degrees"),
    [
        ("sphere", "x", 37.0),
        ("cylinder", "y", 37.0),
        ("cylinder", "x", 180.0),
        ("cube", "x", 90.0),
        ("brick", "x", 180.0),
        ("cone", "y", 37.0),
        ("torus", "y", 37.0),
        ("square_table", "y", 90.0),
        ("round_table", "y", 37.0),
    ],
)
def test_basic_shapes_are_symmetric(name: str, axis: str, degrees: float) -> None:
    shape, generator = basic_shape(name), seeded()
    first, second = (shape.sample(3000, generator).points.numpy() for _ in range(2))
    turned = second @ turn(axis, degrees).T.astype(np.float32)
    assert chamfer(first, turned) < 1.05 * chamfer(first, second)


# (class, the part in front of or above ..., the other part, axis, sign of the difference of their means)
FRAMES = [
    ("chair", "seat", "legs", 1, 1),
    ("chair", "back", "seat", 1, 1),
    ("chair", "back", "seat", 2, 1),
    ("sofa", "back", "cushions", 2, 1),
    ("sofa", "cushions", "legs", 1, 1),
    ("bed", "headboard", "mattress", 2, 1),
    ("bed", "pillows", "legs", 1, 1),
    ("toilet", "tank", "bowl", 2, 1),
    ("toilet", "seat", "bowl", 1, 1),
    ("monitor", "neck", "screen", 2, 1),
    ("monitor", "screen", "foot", 1, 1),
    ("desk", "panel", "drawers", 2, 1),
    ("desk", "top", "legs", 1, 1),
    ("car", "lights", "cabin", 2, -1),
    ("car", "cabin", "wheels", 1, 1),
    ("truck", "cab", "cargo", 2, -1),
    ("truck", "cab", "wheels", 1, 1),
    ("airplane", "fin", "wings", 2, 1),
    ("airplane", "fin", "fuselage", 1, 1),
    ("mug", "handle", "body", 0, 1),
    ("teapot", "spout", "body", 2, -1),
    ("teapot", "knob", "body", 1, 1),
    ("hammer", "face", "handle", 2, -1),
    ("hammer", "head", "handle", 1, 1),
    ("guitar", "bridge", "body", 2, -1),
    ("guitar", "head", "body", 1, 1),
    ("spade", "shaft", "blade", 1, 1),
    ("spade", "blade", "shaft", 2, -1),
    ("screwdriver", "handle", "tip", 1, 1),
    ("table", "top", "legs", 1, 1),
    ("shelf", "back", "boards", 2, 1),
    ("lamp", "shade", "base", 1, 1),
    ("pliers", "jaws", "handles", 1, 1),
    ("wrench", "jaw", "bar", 1, 1),
    ("bottle", "neck", "body", 1, 1),
]


@pytest.mark.parametrize(("name", "one", "other", "axis", "sign"), FRAMES)
def test_up_and_front_are_where_the_convention_says(name: str, one: str, other: str, axis: int, sign: int) -> None:
    for seed in range(6):
        shape = made(name, seed)
        difference = part(shape, one)[:, axis].mean() - part(shape, other)[:, axis].mean()
        assert sign * float(difference) > 0.002, seed


def test_a_boats_bow_is_narrower_than_its_stern_and_points_forward() -> None:
    for seed in range(8):
        hull = part(made("boat", seed), "hull")
        low, high = hull[:, 2].min(), hull[:, 2].max()
        bow, stern = hull[hull[:, 2] < low + 0.1 * (high - low)], hull[hull[:, 2] > high - 0.1 * (high - low)]
        assert bow[:, 0].abs().max() < 0.8 * stern[:, 0].abs().max()


def test_shapes_travel_between_processes() -> None:
    shape = make_shape("chair", 2)
    copy = pickle.loads(pickle.dumps(shape))
    assert torch.equal(shape.sample(100, seeded()).points, copy.sample(100, seeded()).points)


def test_small_counts_and_negative_seeds_work() -> None:
    for name in ("teapot", "shelf"):
        assert make_shape(name, -3).sample(1, seeded()).points.shape == (1, 3)


def test_wrong_requests_get_one_sentence() -> None:
    with pytest.raises(InvalidInputError, match=r"no embedded class 'cahir': choose one of airplane, bed"):
        make_shape("cahir", 0)
    with pytest.raises(InvalidInputError, match="count must be at least 1, but it is 0"):
        make_shape("chair", 0).sample(0, seeded())
