import torch

from geocaps.model import losses
from geocaps.model.losses import nearest_indices
from geocaps.model.parts import exact_square_distance, min_square_distance


def test_tree_and_exhaustive_search_find_the_same(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    queries, targets = torch.randn(3, 70, 3, generator=generator), torch.randn(3, 40, 3, generator=generator)
    expected = (queries[:, :, None] - targets[:, None]).square().sum(-1).argmin(dim=-1)
    assert torch.equal(nearest_indices(queries, targets), expected)
    monkeypatch.setattr(losses, "_BLOCK", 80)  # several blocks
    for q, t, e in zip(queries, targets, expected, strict=True):
        assert torch.equal(losses._nearest_exhaustive(q, t), e)


def test_rough_distance_is_close_to_the_exact_one():
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(2, 50, 3, generator=generator) + 3.0  # far from the origin: the product form must not care
    surfaces = points[:, :48].reshape(2, 6, 8, 3) + 0.01
    exact = (points[:, None, :, None] - surfaces[:, :, None]).square().sum(-1).amin(-1)
    torch.testing.assert_close(min_square_distance(points, surfaces), exact, atol=2e-6, rtol=0)
    for j in range(6):
        pairs = exact_square_distance(points, surfaces, torch.full((50,), j), torch.arange(50))
        torch.testing.assert_close(pairs, exact[0, j], atol=1e-9, rtol=1e-5)
