"""What must hold exactly of the whole model: equivariance, invariance, determinism, clear refusals."""

import inspect
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from geocaps.errors import InvalidInputError
from geocaps.geometry.se3 import Pose
from geocaps.model.capsules import Capsules
from geocaps.model.losses import chamfer
from tests.model.conftest import clouds, rotations


def test_object_pose_follows_and_feature_stays(cpu_model):
    points = clouds(4, 1024)
    motion = Pose(0.5 * torch.randn(4, 3, generator=torch.Generator().manual_seed(3)), rotations(4, seed=4).wxyz)
    before, after = cpu_model.parse(points), cpu_model.parse(motion.apply(points))
    # Untrained and lively: looks, one after the other, enlarge rounding. tests/apps holds the shipped weights.
    torch.testing.assert_close(after.object.feature, before.object.feature, atol=4e-2, rtol=0)
    torch.testing.assert_close(after.object.pose.matrix(), (motion @ before.object.pose).matrix(), atol=1e-3, rtol=0)
    assert before.object.feature.std() > 1e-4
    torch.testing.assert_close(after.scale, before.scale, atol=1e-3, rtol=0)
    assert before.percept is not None
    assert after.percept is not None
    torch.testing.assert_close(after.percept, before.percept, atol=4e-2, rtol=0)
    # Candidates are the same set; their order is eigh's.
    torch.testing.assert_close(after.probability.sort().values, before.probability.sort().values, atol=1e-3, rtol=0)


def test_the_papers_choice_is_the_candidate_that_explains_the_points_best(tiny_paper):
    points = clouds(3, 64)
    parts = tiny_paper.parts(points).parts
    seen = tiny_paper.parse_parts(parts, points, torch.Generator().manual_seed(2), trials=5)
    assert seen.candidates.shape == (3, 5)
    winner = chamfer(points, tiny_paper.reconstruct(seen).flatten(1, 2))
    percepts = tiny_paper.object.feature_network(parts.capsules, seen.candidates)
    for s in range(5):
        other = replace(seen, object=Capsules(seen.candidates[:, s], percepts[:, s]))
        assert (chamfer(points, tiny_paper.reconstruct(other).flatten(1, 2)) >= winner - 1e-6).all()


def test_layer_2_sees_parts_and_nothing_else(tiny):
    """No function of the layer takes a cloud, and other points with the same parts give the same bits."""
    for name in ("perceive", "shown", "starts", "lead", "vote", "feature", "percepts", "decode"):
        given = inspect.signature(getattr(tiny.object, name)).parameters
        assert not {"points", "cloud"} & set(given), name
    points = clouds(2, 64)
    parts = tiny.parts(points).parts
    seen, blind = tiny.parse_parts(parts, points), tiny.parse_parts(parts, None)
    assert torch.equal(seen.object.feature, blind.object.feature)
    assert torch.equal(seen.object.pose.wxyz, blind.object.pose.wxyz)
    swapped = tiny.parse_parts(parts[[1, 0]], points)
    torch.testing.assert_close(swapped.object.feature, seen.object.feature[[1, 0]], atol=1e-3, rtol=1e-3)


def test_the_objects_own_decomposition_starts_from_what_it_decodes(tiny):
    """``T = PointsToParts(X, U, 3)`` in the whole object's frame."""
    points = clouds(2, 64)
    seen = tiny.parse(points)
    found = tiny.decomposition(points, seen)
    local = (points - seen.object.pose.translation[:, None]) / seen.scale[:, None, None]
    rotation = Pose(torch.zeros(2, 3), seen.object.pose.wxyz)
    with torch.no_grad():
        expected = tiny.parts(local, tiny.object.decode(Capsules(rotation, seen.object.feature)))
    torch.testing.assert_close(found.capsules.feature, expected.capsules.feature)
    surfaces = tiny.reconstruct(seen)
    placed = tiny.parts.decode(tiny.object.decode(Capsules(rotation, seen.object.feature)))
    torch.testing.assert_close(
        surfaces, placed * seen.scale[:, None, None, None] + seen.object.pose.translation[:, None, None]
    )


def test_alone_or_in_a_batch_an_object_parses_the_same(tiny):
    points = clouds(3, 64)
    together, alone = tiny.parse(points), tiny.parse(points[1:2])
    torch.testing.assert_close(alone.object.feature, together.object.feature[1:2], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(alone.object.pose.matrix(), together.object.pose.matrix()[1:2], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(alone.probability, together.probability[1:2], atol=1e-5, rtol=1e-5)
    assert (together.probability.sum(dim=1) < 1).all(), "what is left is the chance that none is right"


SCRIPT = """
import sys, torch
from tests.model.conftest import TINY, make_model, clouds
for threads in (1, 2):
    torch.set_num_threads(threads)
    parse = make_model(TINY).parse(clouds(3, 64))
    parts = [parse.parts.pose.vector(), parse.parts.feature, parse.object.pose.vector(), parse.object.feature]
    sys.stdout.buffer.write(b"".join(t.numpy().tobytes() for t in parts))
"""


@pytest.mark.slow
def test_same_bits_across_processes_and_nearly_across_thread_counts():
    """With more threads the matrix library may add up in another order: seen on an AMD processor."""
    first, second = (
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout for _ in range(2)
    )
    assert first == second
    one, two = torch.frombuffer(bytearray(first), dtype=torch.float32).chunk(2)
    assert len(one) == len(two) > 0
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


BAD = {
    "NaN": (lambda: torch.full((1, 64, 3), torch.nan), "64 points that are NaN or infinite"),
    "infinite": (lambda: torch.full((1, 64, 3), torch.inf), "NaN or infinite"),
    "huge": (lambda: torch.full((1, 64, 3), 1e20), "1e\\+20"),
    "few": (lambda: torch.zeros(1, 5, 3), "5 points per cloud; at least 6"),
    "empty batch": (lambda: torch.zeros(0, 64, 3), "empty batch"),
    "flat": (lambda: torch.zeros(64, 3), "shape \\[B, N, 3\\], not \\[64, 3\\]"),
    "two columns": (lambda: torch.zeros(1, 64, 2), "shape"),
    "integers": (lambda: torch.zeros(1, 64, 3, dtype=torch.int64), "floating point, not torch.int64"),
    "a list": (lambda: [[0.0, 0.0, 0.0]], "must be a tensor"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_input_is_refused_in_one_sentence(name):
    # Outside the shape checks that pytest switches on, which would answer first: a user has only ours.
    from geocaps.model.parts import require_points

    value, message = BAD[name]
    with pytest.raises(InvalidInputError, match=message):
        require_points(value(), minimum=6)


@pytest.mark.parametrize("name", ["NaN", "infinite", "huge", "few", "empty batch"])
def test_the_model_itself_refuses(tiny, name):
    value, message = BAD[name]
    with pytest.raises(InvalidInputError, match=message):
        tiny.parse(value())


def test_without_the_test_suites_type_checks_the_refusal_is_still_ours():
    code = (
        "import torch\n"
        "from geocaps.model.autoencoder import GeometricCapsuleAutoencoder\n"
        "from geocaps.model.config import ModelConfig, PartsConfig\n"
        "from geocaps.errors import InvalidInputError\n"
        "model = GeometricCapsuleAutoencoder(ModelConfig(parts=PartsConfig(parts=6, width=8)))\n"
        "for bad in (torch.zeros(64, 3), torch.zeros(1, 64, 3).long(), [[0.0]]):\n"
        "    try:\n        model.parse(bad)\n    except InvalidInputError as error:\n        print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    flat, integers, a_list = out.stdout.splitlines()
    assert "shape [B, N, 3], not [64, 3]" in flat
    assert "floating point, not torch.int64" in integers
    assert "must be a tensor" in a_list
