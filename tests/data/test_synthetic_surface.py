"""The sampler against closed forms: implicit equations, normals by gradients, areas, uniformity."""

import math

import numpy as np
import pytest
import torch
from scipy.special import elliprg
from scipy.stats import chisquare, kstest

from geocaps.data.synthetic import CLASS_NAMES, Surface, make_shape, make_surface
from geocaps.data.synthetic import solids as p
from geocaps.data.synthetic.solids import Solid

SOLIDS: dict[str, Solid] = {
    "box": p.box(1.0, 0.5, 0.7),
    "rounded_box": p.rounded_box(1.0, 0.5, 0.7, 0.1),
    "prism": p.prism([(0, 0), (2, 0), (2, 1), (1, 0.4), (0, 1)], 0.5),
    "loft": p.loft(
        [(-1, 0, -1), (1, 0, -1), (1, 0, 1), (-1, 0, 1)],
        [(-0.5, 1, -0.4), (0.5, 1, -0.4), (0.5, 1, 0.6), (-0.5, 1, 0.6)],
    ),
    "cylinder": p.cylinder(0.5, 1.0),
    "frustum": p.frustum(0.8, 0.2, 1.0),
    "sphere": p.sphere(1.0),
    "dome": p.dome(1.0, 0.6),
    "torus": p.ring(1.0, 0.4),
    "pipe": p.pipe([(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 2)], 0.1, bend=0.3),
    "kinked_pipe": p.pipe([(0, 0, 0), (1, 0, 0), (1, 1, 0)], 0.1),
    "rod": p.rod((0, 0, 0), (1, 2, 3), 0.4, 0.1),
    "ellipsoid": p.ellipsoid(0.4, 1.0, 0.6).turned("x", 30),
    "sheared": p.cylinder(0.5, 1.0).transformed(np.array([[1.0, 0.5, 0], [0, 1, 0], [0.2, 0, 0.5]]), np.zeros(3)),
    "mirrored": p.frustum(0.8, 0.2, 1.0).scaled(-1.0, 1.0, 0.7),
    "mirrored_box": p.prism([(0, 0), (2, 0), (0, 1)], 0.5).scaled(x=-1.0),
}
# Closed solids whose volume is known, for the divergence theorem.
VOLUMES = {
    "box": 0.35,
    "rounded_box": 0.8 * 0.3 * 0.5
    + 2 * 0.1 * (0.8 * 0.3 + 0.3 * 0.5 + 0.8 * 0.5)
    + math.pi * 0.01 * (0.8 + 0.3 + 0.5)
    + 4 / 3 * math.pi * 0.001,
    "prism": 0.7,
    "cylinder": math.pi * 0.25,
    "frustum": math.pi / 3 * (0.64 + 0.16 + 0.04),
    "sphere": 4 / 3 * math.pi,
    "dome": 2 / 3 * math.pi * 0.6,
    "torus": 2 * math.pi**2 * 0.16,
    "pipe": math.pi * 0.01 * (0.7 + 0.4 + 1.7 + 2 * 0.3 * math.pi / 2),
    "rod": math.pi / 3 * math.sqrt(14) * (0.16 + 0.04 + 0.01),
    "ellipsoid": 4 / 3 * math.pi * 0.24,
    "sheared": math.pi * 0.25 * 0.5,
    "mirrored": math.pi / 3 * (0.64 + 0.16 + 0.04) * 0.7,
    "mirrored_box": 0.5,
    "bent_plate": math.radians(80) / 2 * (1 - 0.81) * 0.5,
}
SOLIDS["bent_plate"] = p.bent_plate(1.0, 0.5, 0.1, 80.0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scale_of(solid: Solid, surface: Surface) -> float:
    """How much the normalisation shrank the solid: read off the first triangle or linear map."""
    if len(solid.triangles):
        before, after = (s.triangles[0, 1] - s.triangles[0, 0] for s in (solid, surface.solid))
        return float(np.linalg.norm(after) / np.linalg.norm(before))
    return float(np.linalg.norm(surface.solid.linear[0]) / np.linalg.norm(solid.linear[0]))


def implicit(surface: Surface, points: np.ndarray, patch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance-like residual of each point on its patch, and the unit normal (up to sign), by the implicit equation."""
    solid, curves = surface.solid, len(surface.solid.profiles)
    residual, normal = np.empty(len(points)), np.empty((len(points), 3))
    for k, (x, which) in enumerate(zip(points.astype(np.float64), patch, strict=True)):
        if which >= curves:
            a, b, c = solid.triangles[which - curves]
            n = np.cross(b - a, c - a)
            n /= np.linalg.norm(n)
            weights = np.linalg.lstsq(np.column_stack([b - a, c - a]), x - a, rcond=None)[0]
            outside = max(0.0, -weights.min(), weights.sum() - 1)
            residual[k], normal[k] = abs((x - a) @ n) + (outside if outside > 1e-4 else 0.0), n
            continue
        rho0, rho_span, height0, height_span, radius, *_ = solid.profiles[which]
        inverse = np.linalg.inv(solid.linear[which])
        local = inverse @ (x - solid.offset[which])
        rho = math.hypot(local[0], local[2])
        if radius:
            from_ring = np.array([rho - rho0, local[1] - height0])
            value, slope = np.linalg.norm(from_ring) - radius, from_ring / np.linalg.norm(from_ring)
        else:
            slope = np.array([height_span, -rho_span]) / math.hypot(rho_span, height_span)
            value = slope @ [rho - rho0, local[1] - height0]
        gradient = inverse.T @ np.array([slope[0] * local[0] / rho, slope[1], slope[0] * local[2] / rho])
        residual[k], normal[k] = abs(value) / np.linalg.norm(gradient), gradient / np.linalg.norm(gradient)
    return residual, normal


@pytest.mark.parametrize("name", SOLIDS)
def test_points_obey_the_implicit_equation_and_normals_its_gradient(name: str) -> None:
    surface = make_surface({"all": SOLIDS[name]})
    points, normals, patch = surface.sample(400, seeded())
    residual, expected = implicit(surface, points, patch)
    assert residual.max() < 1e-6
    assert np.abs(np.abs(np.einsum("ni,ni->n", normals, expected)) - 1).max() < 1e-4
    assert np.abs(np.linalg.norm(normals, axis=1) - 1).max() < 1e-5


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_every_class_lies_on_its_surface(name: str) -> None:
    surface = make_shape(name, 3).surface
    points, normals, patch = surface.sample(300, seeded())
    residual, expected = implicit(surface, points, patch)
    assert residual.max() < 2e-6
    assert np.abs(np.abs(np.einsum("ni,ni->n", normals, expected)) - 1).max() < 1e-3


@pytest.mark.parametrize("name", VOLUMES)
def test_outward_normals_give_the_volume_by_the_divergence_theorem(name: str) -> None:
    """Wrong orientation of any face, a wrong area or a missing face would each change the integral of x · n."""
    surface = make_surface({"all": SOLIDS[name]})
    points, normals, _ = surface.sample(200_000, seeded())
    flux = np.einsum("ni,ni->n", points.astype(np.float64), normals).mean() * surface.areas.sum() / 3
    closed = normals.mean(axis=0)
    expected = VOLUMES[name] * scale_of(SOLIDS[name], surface) ** 3
    assert flux == pytest.approx(expected, rel=0.02)
    assert np.abs(closed).max() < 0.01


def test_areas_match_closed_forms() -> None:
    forms = {
        "box": 2 * (0.5 + 0.35 + 0.7),
        "cylinder": math.pi * 1.5,
        "frustum": math.pi * (0.64 + 0.04 + math.sqrt(1.36)),
        "sphere": 4 * math.pi,
        "torus": 4 * math.pi**2 * 0.4,
        "ellipsoid": 4 * math.pi * elliprg((0.4 * 1.0) ** 2, (0.4 * 0.6) ** 2, 0.6**2),
        "bent_plate": math.radians(80) * 1.9 * (0.5 + 0.1) + 2 * 0.05,
        "pipe": 2 * math.pi * 0.1 * (2.8 + 0.3 * math.pi) + 2 * math.pi * 0.01,
    }
    for name, expected in forms.items():
        surface = make_surface({"all": SOLIDS[name]})
        assert surface.areas.sum() == pytest.approx(expected * scale_of(SOLIDS[name], surface) ** 2, rel=1e-5), name


@pytest.mark.parametrize("name", [*SOLIDS, *CLASS_NAMES])
def test_patches_are_chosen_by_area(name: str) -> None:
    surface = make_surface({"all": SOLIDS[name]}) if name in SOLIDS else make_shape(name, 1).surface
    _, _, patch = surface.sample(300_000, seeded(1))
    observed = np.bincount(patch, minlength=len(surface.areas))
    expected = surface.areas / surface.areas.sum() * 300_000
    rare = expected < 8
    if rare.any():
        observed, expected = (np.append(a[~rare], a[rare].sum()) for a in (observed, expected))
    if len(observed) > 1:
        # Forty cases are tried, so the bound is low; many points make even a bias of a few percent in a patch fail it.
        assert chisquare(observed, expected).pvalue > 1e-5


def test_points_are_uniform_within_a_patch() -> None:
    points, _, _ = make_surface({"all": p.sphere(1.0)}).sample(20_000, seeded())
    for axis in range(3):  # Archimedes: each coordinate of a uniform sphere is uniform
        assert kstest(points[:, axis], "uniform", (-1, 2)).pvalue > 1e-3
    torus = make_surface({"all": p.ring(1.0, 0.4)})
    points, _, _ = torus.sample(20_000, seeded())
    distance = np.hypot(points[:, 0], points[:, 2]) * 1.4
    outer = 0.5 + 0.4 / math.pi  # share of a torus' area outside its ring: 1/2 + r/(πR)
    assert np.mean(distance > 1.0) == pytest.approx(outer, abs=0.012)
    points, _, _ = make_surface({"all": p.ellipsoid(0.2, 1.0, 0.6)}).sample(40_000, seeded())
    fine = np.random.default_rng(0).normal(size=(400_000, 3))
    fine /= np.linalg.norm(fine, axis=1, keepdims=True)
    element = np.linalg.norm(fine / [0.2, 1.0, 0.6], axis=1)
    for limit in (0.3, 0.6, 0.9):
        expected = element[np.abs(fine[:, 1]) < limit].sum() / element.sum()
        assert np.mean(np.abs(points[:, 1]) < limit) == pytest.approx(expected, abs=0.012)


def test_the_order_of_points_is_random() -> None:
    surface = make_shape("chair", 0).surface
    _, _, patch = surface.sample(4000, seeded())
    order = np.corrcoef(np.arange(4000), patch)[0, 1]
    assert abs(order) < 0.06


def test_an_outline_with_notches_is_filled_exactly() -> None:
    outline = np.array([(0, 0), (4, 0), (4, 3), (3, 3), (3, 1), (1, 1), (1, 3), (0, 3)], dtype=float)
    for corners in (outline, outline[::-1].copy()):
        triangles = corners[p.triangulate(corners)]
        first, second = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
        areas = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) / 2
        assert areas.sum() == pytest.approx(8.0)
        assert len(triangles) == 6
