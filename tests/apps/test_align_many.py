"""Several scans at once: consistent poses, and the scan that does not fit is named."""

import numpy as np
import pytest
import torch

from geocaps.apps.align.many import align_many
from geocaps.data.corruption import crop_half_space
from geocaps.data.synthetic import make_shape
from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity
from geocaps.io import save_points


def scans(count=4):
    """Crops of one chair, each in a frame of its own, and the frames ``T_chair_scan``."""
    shape, clouds, frames = make_shape("chair", 3), [], []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        cropped = crop_half_space(shape.sample(900, generator).points.double(), 0.8, generator)[0].numpy()
        rng = np.random.default_rng(seed)
        frames.append(Similarity.from_wxyz(rng.normal(size=4), rng.normal(size=3)))
        clouds.append(frames[-1].observe(cropped))
    return clouds, frames


def test_scans_come_into_the_frame_of_the_first():
    clouds, frames = scans()
    merged = align_many(clouds)
    for place, frame in enumerate(frames):
        truth = frames[0].inverse() @ frame
        assert np.degrees(merged.poses[place].angle_to(truth)) < 3
        assert np.abs(merged.poses[place].apply(clouds[place]) - truth.apply(clouds[place])).max() < 0.06
    assert len(merged.points()) == sum(map(len, clouds))
    assert merged.confidence.min() > 0.5
    assert len(merged.pairs) == 6


def test_the_scan_that_does_not_fit_is_named(tmp_path):
    clouds, _ = scans(2)
    stranger = make_shape("airplane", 1).sample(900, torch.Generator().manual_seed(9)).points.double().numpy()
    for name, cloud in zip(("one", "two", "stranger"), (*clouds, stranger), strict=True):
        save_points(tmp_path / f"{name}.npy", cloud)
    with pytest.raises(InvalidInputError, match=r"stranger\.npy does not fit the other scans"):
        align_many([tmp_path / f"{name}.npy" for name in ("one", "stranger", "two")])
    with pytest.raises(InvalidInputError, match="at least two scans"):
        align_many(clouds[:1])
