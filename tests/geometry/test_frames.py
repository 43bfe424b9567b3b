import torch

from geocaps.geometry.frames import farthest_points, local_frames, principal_axes, surface_axes, surface_normals
from geocaps.geometry.se3 import Pose
from tests.model.conftest import clouds, rotations


def test_farthest_points_by_the_definition():
    points = clouds(2, 60)
    found = farthest_points(points, 8)
    for cloud, chosen in zip(points, found.tolist(), strict=True):
        expected = [int((cloud - cloud.mean(dim=0)).norm(dim=1).argmax())]
        while len(expected) < 8:
            nearest = torch.stack([(cloud - cloud[i]).norm(dim=1) for i in expected]).amin(dim=0)
            expected.append(int(nearest.argmax()))
        assert chosen == expected


def test_farthest_points_turn_with_the_cloud():
    points, motion = clouds(3, 500), rotations(3)
    assert torch.equal(farthest_points(points, 16), farthest_points(motion.apply(points), 16))


def test_local_frames_are_proper_and_turn_with_the_cloud():
    points, motion = clouds(3, 800), rotations(3)
    index = farthest_points(points, 16)
    centers = points.gather(1, index[..., None].expand(-1, -1, 3))
    frames = local_frames(points, centers, 0.35)
    torch.testing.assert_close(torch.linalg.det(frames), torch.ones(3, 16))
    turned = local_frames(motion.apply(points), motion.apply(centers), 0.35)
    torch.testing.assert_close(turned, motion.rotation_matrix()[:, None] @ frames, atol=1e-4, rtol=0)


def test_normals_of_a_sphere_point_outwards():
    sphere = torch.nn.functional.normalize(torch.randn(1, 4000, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    centers = sphere[:, :20]
    normal = local_frames(sphere, centers, 0.35)[..., 2]
    assert (normal * centers).sum(-1).min() > 0.97


def test_frames_of_degenerate_clouds_are_rotations():
    line = torch.linspace(-1, 1, 50)[None, :, None] * torch.tensor([1.0, 0.0, 0.0])
    for cloud in (torch.zeros(1, 50, 3), line):
        frames = local_frames(cloud, cloud[:, :4], 0.35)
        assert torch.isfinite(frames).all()
        torch.testing.assert_close(torch.linalg.det(frames), torch.ones(1, 4))


def test_principal_axes_of_a_box():
    generator = torch.Generator().manual_seed(0)
    box = (torch.rand(1, 20000, 3, generator=generator) - 0.5) * torch.tensor([1.0, 3.0, 2.0])
    axes, center = principal_axes(box + 7, torch.full((1, 20000), 1 / 20000))
    torch.testing.assert_close(axes[0].abs(), torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]), atol=0.03, rtol=0)
    torch.testing.assert_close(center[0], torch.full((3,), 7.0), rtol=0, atol=0.03)
    # Weighed by how far up a point lies, the box leans upwards: its centre rises by the variance over the mean.
    height = box[0, :, 1] + 1.5
    _, center = principal_axes(box, (height / height.sum())[None])
    assert abs(float(center[0, 1]) - 0.75 / 1.5) < 0.03


def box_surface(count, seed=0, sides=(1.0, 0.7, 0.4)):
    """Points on the faces of a box with its edges along the axes."""
    generator = torch.Generator().manual_seed(seed)
    points = (torch.rand(1, count, 3, generator=generator) - 0.5) * torch.tensor(sides)
    face = torch.randint(3, (1, count, 1), generator=generator)
    side = (torch.randint(2, (1, count, 1), generator=generator) - 0.5) * torch.tensor(sides)[face]
    return points.scatter(2, face, side)


def off_axes(axes):
    """The largest angle (radians, small) between a frame's axes and the coordinate axes, whichever they are."""
    return float((1 - axes.abs().amax(dim=-2)).amax().mul(2).sqrt())


def equal(points):
    return torch.full(points.shape[:2], 1 / points.shape[1])


def test_surface_normals_of_a_sphere_point_outwards():
    sphere = torch.nn.functional.normalize(torch.randn(1, 2000, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    centers = sphere[:, :50]
    normals = surface_normals(sphere, centers)
    torch.testing.assert_close(normals.diagonal(dim1=-2, dim2=-1).sum(-1), torch.ones(1, 50).double())
    along = (centers.double()[..., None, :] @ normals @ centers.double()[..., None]).flatten()
    assert along.min() > 0.9


def test_surface_axes_are_where_the_sum_of_fourth_powers_is_largest():
    """Against every rotation of a fine search about the found one, and many at random."""
    cloud = rotations(1).apply(box_surface(600))
    axes, _ = surface_axes(cloud, equal(cloud))
    normals = surface_normals(cloud, cloud[:, ::2])[0]

    def height(rotation):
        return torch.einsum("...ca,ncd,...da->...na", rotation, normals, rotation).square().mean(dim=-2).sum(-1)

    generator = torch.Generator().manual_seed(1)
    others = Pose.random(500, generator=generator, dtype=torch.float64).rotation_matrix()
    nearby = Pose.perturbation(500, max_angle=0.05, generator=generator, dtype=torch.float64).rotation_matrix()
    best = height(axes[0].double())
    assert height(others).max() < best
    assert height(axes[0].double() @ nearby).max() < best + 1e-6


def test_surface_axes_of_a_box_do_not_turn_when_it_is_cut():
    """The principal axes do: that is why they are not where viewpoints start."""
    box = box_surface(2000)
    cut = box[:, (box[0] @ torch.tensor([1.0, 0.8, 0.6])) < 0.1]
    for cloud in (box, cut):
        assert off_axes(surface_axes(cloud, equal(cloud))[0]) < 0.05
    assert off_axes(principal_axes(cut, equal(cut))[0]) > 0.15


def test_surface_axes_turn_with_the_cloud():
    points, motion = clouds(4, 400), rotations(4)
    axes, center = surface_axes(points, equal(points))
    turned, moved = surface_axes(motion.apply(points), equal(points))
    torch.testing.assert_close(torch.linalg.det(axes), torch.ones(4))
    torch.testing.assert_close(moved, motion.apply(center[:, None])[:, 0], atol=1e-5, rtol=0)
    # The same axes, in another order and with other signs.
    between = turned.mT @ motion.rotation_matrix() @ axes
    torch.testing.assert_close(between.abs().amax(dim=-1), torch.ones(4, 3), atol=1e-4, rtol=0)


def test_surface_axes_of_degenerate_clouds_are_rotations():
    line = torch.linspace(-1, 1, 50)[None, :, None] * torch.tensor([1.0, 0.0, 0.0])
    plane = torch.rand(1, 50, 3) * torch.tensor([1.0, 1.0, 0.0])
    for cloud in (torch.zeros(1, 50, 3), line, plane, torch.rand(1, 7, 3)):
        axes, _ = surface_axes(cloud, equal(cloud))
        torch.testing.assert_close(axes @ axes.mT, torch.eye(3)[None], atol=1e-5, rtol=0)
