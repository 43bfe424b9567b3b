import torch

from geocaps.geometry.frames import farthest_points, local_frames, principal_axes
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
    axes, variances = principal_axes(box)
    torch.testing.assert_close(axes[0].abs(), torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]), atol=0.03, rtol=0)
    torch.testing.assert_close(variances[0], torch.tensor([9.0, 4, 1]) / 12, rtol=0.03, atol=0)
