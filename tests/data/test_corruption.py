import math

import pytest
import torch

from geocaps.data import corruption as c
from geocaps.errors import InvalidInputError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def cloud() -> torch.Tensor:
    return torch.randn(500, 3, generator=seeded(99)) * torch.tensor([1.0, 0.5, 0.2]) + torch.tensor([0.3, -0.2, 2.0])


def sphere(count: int) -> torch.Tensor:
    points = torch.randn(count, 3, generator=seeded(5))
    return points / points.norm(dim=1, keepdim=True)


CALLS = {
    "gaussian_noise": lambda x, g: (c.gaussian_noise(x, 0.1, g),),
    "outliers": lambda x, g: c.outliers(x, 0.5, g),
    "stray_points": lambda x, g: c.stray_points(x, 0.5, 1.0, g),
    "crop_half_space": lambda x, g: c.crop_half_space(x, 0.5, g),
    "visible_from": lambda x, g: c.visible_from(x, g),
    "vary_density": lambda x, g: c.vary_density(x, g),
}
SELECTIONS = ("crop_half_space", "visible_from", "vary_density")


@pytest.mark.parametrize("name", CALLS)
def test_same_seed_same_answer_other_seed_other_answer_and_input_untouched(name: str, cloud: torch.Tensor) -> None:
    before = cloud.clone()
    first, again, other = (CALLS[name](cloud, seeded(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[0].shape != other[0].shape or not torch.equal(first[0], other[0])
    assert torch.equal(cloud, before)
    assert first[0].dtype == torch.float32


@pytest.mark.parametrize("name", SELECTIONS)
def test_indices_name_the_kept_points(name: str, cloud: torch.Tensor) -> None:
    points, kept = CALLS[name](cloud, seeded())
    assert torch.equal(points, cloud[kept])
    assert kept.dtype == torch.int64


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("points", [torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(7, 3)], ids=["one", "identical"])
def test_one_point_and_identical_points(name: str, points: torch.Tensor) -> None:
    result = CALLS[name](points, seeded())[0]
    assert 1 <= len(result) <= len(points)
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("points", "message"), [(torch.zeros(0, 3), "no points"), (torch.tensor([[math.nan, 0.0, 0.0]]), "not finite")]
)
def test_bad_clouds_get_one_sentence(name: str, points: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CALLS[name](points, seeded())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, g: c.gaussian_noise(x, math.nan, g), "std must be at least 0"),
        (lambda x, g: c.outliers(x, 1.5, g), "share must be between 0 and 1"),
        (lambda x, g: c.stray_points(x, -0.1, 1.0, g), "share must be between 0 and 1"),
        (lambda x, g: c.stray_points(x, 0.1, -1.0, g), "half_side must be at least 0"),
        (lambda x, g: c.crop_half_space(x, 0.0, g), "keep must be a share"),
        (lambda x, g: c.visible_from(x, g, distance=1.0), "distance must be more than 1"),
        (lambda x, g: c.visible_from(x, torch.zeros(3)), "direction must be a vector that is not zero"),
        (lambda x, g: c.vary_density(x, g, strength=-1.0), "strength must be at least 0"),
    ],
)
def test_bad_arguments_get_one_sentence(call, message: str, cloud: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(cloud, seeded())


def test_noise_has_the_asked_spread(cloud: torch.Tensor) -> None:
    difference = c.gaussian_noise(cloud.double(), 0.05, seeded()) - cloud
    assert float(difference.std()) == pytest.approx(0.05, rel=0.08)
    assert float(difference.mean()) == pytest.approx(0.0, abs=0.005)
    assert torch.equal(c.gaussian_noise(cloud, 0.0, seeded()), cloud)


@pytest.mark.parametrize("call", [c.outliers, lambda x, share, g: c.stray_points(x, share, 1.0, g)])
@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.05, 25), (1.0, 500)])
def test_exactly_the_share_is_replaced(call, cloud: torch.Tensor, share: float, expected: int) -> None:
    result, replaced = call(cloud, share, seeded())
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


def test_stray_points_fill_the_cube_about_the_origin_evenly(cloud: torch.Tensor) -> None:
    result, _ = c.stray_points(cloud.repeat(20, 1), 1.0, 2.0, seeded())
    assert result.abs().max() <= 2
    octants = (result > 0).double().mean(dim=0)
    assert octants == pytest.approx([0.5] * 3, abs=0.03)
    assert float((result.abs().amax(dim=1) < 1).double().mean()) == pytest.approx(1 / 8, abs=0.02)


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


@pytest.mark.parametrize("distance", [4.0, 6.0])
def test_of_a_sphere_the_near_cap_is_seen(distance: float) -> None:
    """Lines of sight touch the unit sphere at the height 1 / distance; thin samples let the border blur a little."""
    points = sphere(2000) * 3 + torch.tensor([7.0, 0.0, 0.0])
    towards = torch.tensor([1.0, -2.0, 0.5])
    kept = c.visible_from(points, towards, distance)[1]
    height = (sphere(2000) @ (towards / towards.norm())).double()
    seen = torch.zeros(2000, dtype=torch.bool)
    seen[kept] = True
    assert seen[height > 1 / distance + 0.05].all()
    assert not seen[height < 1 / distance - 0.25].any()
    assert len(kept) / 2000 == pytest.approx((1 - 1 / distance) / 2, abs=0.06)


def test_of_a_plate_the_front_is_seen_and_the_back_is_not() -> None:
    flat = torch.rand(2000, 3, generator=seeded(3)) * 2 - 1
    front = flat[:, 2] > 0
    flat[:, 2] = 0.1 * flat[:, 2].sign()
    seen = torch.zeros(2000, dtype=torch.bool)
    seen[c.visible_from(flat, torch.tensor([0.3, 0.0, 1.0]))[1]] = True
    assert seen[front].all()
    assert float(seen[~front].double().mean()) < 0.05
    thin = flat * torch.tensor([1.0, 1.0, 0.0])
    assert len(c.visible_from(thin, torch.tensor([0.3, 0.0, 1.0]))[0]) == 2000


def test_an_open_bowl_shows_its_inside() -> None:
    bowl = sphere(2000)
    bowl[:, 2] = -bowl[:, 2].abs()
    assert len(c.visible_from(bowl, torch.tensor([0.0, 0.0, 1.0]))[0]) > 1950


def test_what_is_seen_turns_and_scales_with_the_cloud(cloud: torch.Tensor) -> None:
    exact, direction = cloud.double(), torch.tensor([0.2, 0.5, -1.0]).double()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=seeded(8), dtype=torch.float64))[0]
    kept = c.visible_from(exact, direction)[1]
    assert torch.equal(c.visible_from(20 * exact @ turn.T + 5, turn @ direction)[1], kept)


def test_copies_of_a_visible_point_are_visible() -> None:
    points = sphere(300)
    kept = c.visible_from(points, torch.tensor([0.0, 0.0, 1.0]))[1]
    twice = c.visible_from(points.repeat(2, 1), torch.tensor([0.0, 0.0, 1.0]))[1]
    assert torch.equal(twice, torch.cat([kept, kept + 300]))
