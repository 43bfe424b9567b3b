import math

import pytest
import torch

from geocaps.errors import InvalidInputError
from geocaps.points import corruption as c


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def cloud() -> torch.Tensor:
    return torch.randn(500, 3, generator=seeded(99)) * torch.tensor([1.0, 0.5, 0.2]) + torch.tensor([0.3, -0.2, 2.0])


def sphere(count: int) -> torch.Tensor:
    points = torch.randn(count, 3, generator=seeded(5))
    return points / points.norm(dim=1, keepdim=True)


def angle_of(rotation: torch.Tensor) -> float:
    return math.acos(max(-1.0, min(1.0, (float(rotation.trace()) - 1) / 2)))


CALLS = {
    "rotate_uniform": lambda x, g: c.rotate_uniform(x, g),
    "rotate_axis_angle": lambda x, g: c.rotate_axis_angle(x, g),
    "translate": lambda x, g: c.translate(x, g),
    "scale_anisotropic": lambda x, g: c.scale_anisotropic(x, 0.5, 2.0, g),
    "gaussian_noise": lambda x, g: (c.gaussian_noise(x, 0.1, g),),
    "outliers": lambda x, g: c.outliers(x, 0.5, g),
    "resample": lambda x, g: c.resample(x, len(x), g, replacement=True),
    "crop_half_space": lambda x, g: c.crop_half_space(x, 0.5, g),
    "vary_density": lambda x, g: c.vary_density(x, g),
    "drop_patches": lambda x, g: c.drop_patches(x, 2, 0.3, g),
}
WITH_VIEW = CALLS | {"occlude_view": lambda x, g: c.occlude_view(x, g)}
SELECTIONS = ("resample", "crop_half_space", "vary_density", "drop_patches", "occlude_view")


@pytest.mark.parametrize("name", WITH_VIEW)
def test_same_seed_same_answer_other_seed_other_answer_and_input_untouched(name: str, cloud: torch.Tensor) -> None:
    before = cloud.clone()
    first, again, other = (WITH_VIEW[name](cloud, seeded(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[0].shape != other[0].shape or not torch.equal(first[0], other[0])
    assert torch.equal(cloud, before)
    assert first[0].dtype == torch.float32


@pytest.mark.parametrize("name", SELECTIONS)
def test_indices_name_the_kept_points(name: str, cloud: torch.Tensor) -> None:
    points, kept = WITH_VIEW[name](cloud, seeded())
    assert torch.equal(points, cloud[kept])
    assert kept.dtype == torch.int64


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("points", [torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(7, 3)], ids=["one", "identical"])
def test_one_point_and_identical_points(name: str, points: torch.Tensor) -> None:
    result = CALLS[name](points, seeded())[0]
    assert 1 <= len(result) <= len(points)
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("name", WITH_VIEW)
@pytest.mark.parametrize(
    ("points", "message"), [(torch.zeros(0, 3), "no points"), (torch.tensor([[math.nan, 0.0, 0.0]]), "not finite")]
)
def test_bad_clouds_get_one_sentence(name: str, points: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        WITH_VIEW[name](points, seeded())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, g: c.rotate_axis_angle(x, g, max_angle=4.0), "max_angle must be between 0 and 3.14159"),
        (lambda x, g: c.translate(x, g, reach=-1.0), "reach must be at least 0"),
        (lambda x, g: c.scale_anisotropic(x, 2.0, 1.0, g), "low <= high"),
        (lambda x, g: c.scale_anisotropic(x, 0.0, 1.0, g), "0 < low"),
        (lambda x, g: c.gaussian_noise(x, math.nan, g), "std must be at least 0"),
        (lambda x, g: c.outliers(x, 1.5, g), "share must be between 0 and 1"),
        (lambda x, g: c.resample(x, 0, g), "count must be at least 1"),
        (lambda x, g: c.resample(x, 501, g), "replacement=True"),
        (lambda x, g: c.crop_half_space(x, 0.0, g), "keep must be a share"),
        (lambda x, g: c.vary_density(x, g, strength=-1.0), "strength must be at least 0"),
        (lambda x, g: c.drop_patches(x, -1, 0.1, g), "patches must be 0 or more"),
        (lambda x, g: c.drop_patches(x, 1, math.inf, g), "radius must be at least 0"),
        (lambda x, g: c.occlude_view(x, g, openness=-1.0), "openness must be between 0 and 12"),
        (lambda x, g: c.occlude_view(x, x[0]), "viewpoint"),
        (lambda x, g: c.occlude_view(x * torch.tensor([1.0, 1.0, 0.0]), torch.tensor([9.0, 0.0, 0.0])), "one plane"),
        (lambda x, g: c.occlude_view(x[:1], torch.tensor([9.0, 0.0, 0.0])), "one plane"),
        (lambda x, g: c.occlude_view(x[:1], g), "all the same"),
    ],
)
def test_bad_arguments_get_one_sentence(call, message: str, cloud: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(cloud, seeded())


@pytest.mark.parametrize("turn", [c.rotate_uniform, c.rotate_axis_angle])
def test_rotations_are_proper_and_act_as_returned(turn, cloud: torch.Tensor) -> None:
    for seed in range(50):
        points, rotation = turn(cloud.double(), seeded(seed))
        assert torch.allclose(rotation @ rotation.T, torch.eye(3, dtype=torch.float64), atol=1e-12)
        assert float(torch.linalg.det(rotation)) == pytest.approx(1.0)
        assert torch.allclose(points[7], rotation @ cloud[7].double())


def test_uniform_rotations_have_the_haar_measure() -> None:
    generator, point = seeded(), torch.eye(3, dtype=torch.float64)
    rotations = torch.stack([c.rotate_uniform(point, generator)[1] for _ in range(4000)])
    angles = torch.tensor([angle_of(rotation) for rotation in rotations])
    # The density of the angle is (1 - cos) / π: mean π/2 + 2/π, standard error 0.64 / √4000 = 0.010.
    assert float(angles.mean()) == pytest.approx(math.pi / 2 + 2 / math.pi, abs=0.04)
    assert rotations.mean(dim=0).abs().max() < 0.04  # the mean of every entry is 0, standard error 0.009
    assert (rotations**2).mean(dim=0).sub(1 / 3).abs().max() < 0.02


def test_axis_angle_is_the_papers_sampling() -> None:
    generator, point = seeded(), torch.eye(3, dtype=torch.float64)
    rotations = [c.rotate_axis_angle(point, generator)[1] for _ in range(4000)]
    angles = torch.tensor([angle_of(rotation) for rotation in rotations])
    assert float(angles.mean()) == pytest.approx(math.pi / 2, abs=0.06)  # |angle| uniform: standard error 0.014
    assert float((angles < math.pi / 4).double().mean()) == pytest.approx(0.25, abs=0.03)
    axes = torch.stack([torch.stack([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) for r in rotations])
    axes = axes / axes.norm(dim=1, keepdim=True)
    assert axes.mean(dim=0).abs().max() < 0.04
    assert (axes**2).mean(dim=0).sub(1 / 3).abs().max() < 0.02


def test_axis_angle_respects_the_largest_angle(cloud: torch.Tensor) -> None:
    generator = seeded()
    angles = [angle_of(c.rotate_axis_angle(cloud.double(), generator, max_angle=0.2)[1]) for _ in range(300)]
    assert 0.17 < max(angles) <= 0.2 + 1e-9
    assert torch.equal(c.rotate_axis_angle(cloud, generator, max_angle=0.0)[1], torch.eye(3))


def test_translation_is_uniform_in_the_cube(cloud: torch.Tensor) -> None:
    generator = seeded()
    moved = [c.translate(cloud, generator) for _ in range(2000)]
    offsets = torch.stack([offset for _, offset in moved])
    assert torch.equal(moved[0][0], cloud + offsets[0])
    assert offsets.abs().max() <= 1
    assert offsets.mean(dim=0).abs().max() < 0.06
    assert (offsets**2).mean(dim=0).sub(1 / 3).abs().max() < 0.04


def test_scaling_stretches_each_axis_within_bounds(cloud: torch.Tensor) -> None:
    generator = seeded()
    results = [c.scale_anisotropic(cloud, 0.5, 2.0, generator) for _ in range(500)]
    factors = torch.stack([factor for _, factor in results])
    assert torch.equal(results[3][0], cloud * factors[3])
    assert factors.min() >= 0.5
    assert factors.max() <= 2.0
    assert factors.mean(dim=0).sub(1.25).abs().max() < 0.1
    assert torch.equal(c.scale_anisotropic(cloud, 1.0, 1.0, generator)[0], cloud)


def test_noise_has_the_asked_spread(cloud: torch.Tensor) -> None:
    difference = c.gaussian_noise(cloud.double(), 0.05, seeded()) - cloud
    assert float(difference.std()) == pytest.approx(0.05, rel=0.08)
    assert float(difference.mean()) == pytest.approx(0.0, abs=0.005)
    assert torch.equal(c.gaussian_noise(cloud, 0.0, seeded()), cloud)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.05, 25), (1.0, 500)])
def test_outliers_replace_exactly_the_share(cloud: torch.Tensor, share: float, expected: int) -> None:
    result, replaced = c.outliers(cloud, share, seeded())
    changed = (result != cloud).any(dim=1).nonzero().squeeze(1)
    assert torch.equal(changed, replaced)
    assert len(replaced) == expected


def test_outliers_fill_the_ball_evenly() -> None:
    points = sphere(4000) * 2 + torch.tensor([5.0, 0.0, 0.0])
    result, _ = c.outliers(points, 1.0, seeded())
    offset = result - points.mean(dim=0)
    distance = offset.norm(dim=1) / (points - points.mean(dim=0)).norm(dim=1).max()
    assert distance.max() <= 1 + 1e-5
    assert float((distance < 0.5).double().mean()) == pytest.approx(1 / 8, abs=0.03)
    assert offset.mean(dim=0).abs().max() < 0.08


def test_resample_without_replacement_never_repeats(cloud: torch.Tensor) -> None:
    _, kept = c.resample(cloud, 500, seeded())
    assert torch.equal(kept.sort().values, torch.arange(500))
    _, again = c.resample(cloud, 2000, seeded(), replacement=True)
    assert len(again) == 2000
    # A point is missed with probability (1 - 1/500)^2000 = 0.018.
    assert 470 <= len(again.unique()) <= 499


@pytest.mark.parametrize(("keep", "expected"), [(0.7, 350), (1.0, 500), (0.001, 1)])
def test_crop_keeps_exactly_the_share(cloud: torch.Tensor, keep: float, expected: int) -> None:
    points, kept = c.crop_half_space(cloud, keep, seeded())
    assert len(points) == expected
    assert (kept.diff() > 0).all()


def test_crop_cuts_by_a_plane() -> None:
    points = sphere(2000)
    kept_points, kept = c.crop_half_space(points, 0.5, seeded())
    normal = kept_points.mean(dim=0)
    normal = normal / normal.norm()
    gone = torch.ones(2000, dtype=torch.bool)
    gone[kept] = False
    assert (kept_points @ normal).min() > -0.1
    assert (points[gone] @ normal).max() < 0.1


def test_crop_directions_differ_in_all_axes() -> None:
    points, generator = sphere(500), seeded()
    means = torch.stack([c.crop_half_space(points, 0.5, generator)[0].mean(dim=0) for _ in range(400)])
    assert (means**2).mean(dim=0).sub(1 / 12).abs().max() < 0.02  # a half sphere's mean is at distance 1/2


def test_density_grows_towards_one_side() -> None:
    points = sphere(5000)
    for strength, expected in (
        (0.0, 0.0),
        (4.0, 2 / 9),
    ):  # mean of t under (1 + s (t+1)/2) on a sphere: s / (3 (2 + s))
        sample, _ = c.vary_density(points, seeded(), strength=strength)
        assert len(sample) == 5000
        assert float(sample.mean(dim=0).norm()) == pytest.approx(expected, abs=0.035)


def test_dropped_patches_leave_holes() -> None:
    points = sphere(3000)
    _, kept = c.drop_patches(points, 1, 0.5, seeded())
    # A cap of chord r holds the share r²/4 of a sphere.
    assert 1 - len(kept) / 3000 == pytest.approx(0.0625, abs=0.015)
    gone = torch.ones(3000, dtype=torch.bool)
    gone[kept] = False
    assert torch.cdist(points[gone], points[gone]).max() <= 1.0
    assert len(c.drop_patches(points, 0, 0.5, seeded())[1]) == 3000
    assert len(c.drop_patches(points, 5, 0.5, seeded())[1]) < len(kept)
    assert len(c.drop_patches(points, 5, 10.0, seeded())[1]) == 3000


def test_a_sphere_hides_its_far_side() -> None:
    points = sphere(2000)
    _, kept = c.occlude_view(points, torch.tensor([0.0, 0.0, 3.0]))
    seen = torch.zeros(2000, dtype=torch.bool)
    seen[kept] = True
    # From distance 3 the horizon of the unit sphere is at z = 1/3.
    assert seen[points[:, 2] > 0.45].float().mean() > 0.99
    assert seen[points[:, 2] < 0.1].float().mean() < 0.01


def test_a_wall_hides_what_is_behind_it() -> None:
    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 40), torch.linspace(-1, 1, 40), indexing="ij"), -1)
    grid = grid.reshape(-1, 2)
    wall = torch.cat([grid, torch.zeros(1600, 1)], dim=1)
    behind = torch.cat([grid[::40] * 0.3, torch.full((40, 1), -1.0)], dim=1)
    _, kept = c.occlude_view(torch.cat([wall, behind]), torch.tensor([0.01, 0.02, 4.0]), openness=3.0)
    assert (kept < 1600).sum() == 1600
    assert (kept >= 1600).sum() == 0


def test_random_viewpoints_see_about_a_third_of_a_sphere_from_all_sides() -> None:
    points, generator = sphere(3000), seeded()
    means = []
    for _ in range(30):
        seen, kept = c.occlude_view(points, generator)
        assert 0.31 < len(kept) / 3000 < 0.42
        means.append(seen.mean(dim=0))
    assert torch.stack(means).mean(dim=0).norm() < 0.35
