import torch

from geocaps.evaluation import literal
from geocaps.model.blocks import FoldingDecoder, grid_square, grid_triangles, random_square


def test_grid_fills_the_square_evenly():
    grid = grid_square(64)
    assert grid.shape == (64, 2)
    torch.testing.assert_close(grid.mean(dim=0), torch.zeros(2), atol=1e-6, rtol=0)
    assert grid.abs().max() < 0.5
    torch.testing.assert_close(grid.amax(), torch.tensor(0.5 - 1 / 16))


def test_random_square_is_uniform():
    square = random_square(1000, 16, generator=torch.Generator().manual_seed(0))
    assert square.shape == (1000, 16, 2)
    assert square.min() >= -0.5
    assert square.max() <= 0.5
    assert square.mean().abs() < 0.01
    assert abs(square.var().item() - 1 / 12) < 0.002


def test_triangles_cover_the_grid_once():
    side = 5
    triangles = grid_triangles(side)
    grid = grid_square(side * side)
    a, b, c = (grid[triangles[:, i]] for i in range(3))
    ab, ac = b - a, c - a
    area = 0.5 * (ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0])
    assert (area > 0).all() or (area < 0).all()
    torch.testing.assert_close(area.abs().sum(), torch.tensor(((side - 1) / side) ** 2))


def test_decoder_equals_the_formula_on_the_concatenation():
    torch.manual_seed(0)
    decoder = FoldingDecoder(8, 16, 2, log_sigma=-6.0)
    feature, square = torch.randn(3, 8), torch.rand(20, 2) - 0.5
    found = decoder(feature, square)
    for one, expected in zip(found, feature, strict=True):
        torch.testing.assert_close(one, literal.fold(decoder, expected, square))
