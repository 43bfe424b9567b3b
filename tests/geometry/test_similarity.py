"""Similarities: the group, its corners, and scipy's rotations as a yardstick."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from geocaps.errors import InvalidInputError
from geocaps.geometry.similarity import Similarity, concatenate

BATCHES = [(), (1,), (5,), (2, 3), (0,), (2, 1, 4)]


def drawn(batch: tuple[int, ...], seed: int = 0) -> Similarity:
    random = np.random.default_rng(seed)
    return Similarity.from_wxyz(
        random.normal(size=(*batch, 4)), random.normal(size=(*batch, 3)), random.uniform(0.2, 5, size=batch)
    )


def same(a: Similarity, b: Similarity, tolerance: float = 1e-11) -> None:
    assert a.shape == b.shape
    np.testing.assert_allclose(a.matrix(), b.matrix(), atol=tolerance)


@pytest.mark.parametrize("batch", BATCHES)
def test_similarities_are_a_group(batch):
    a, b, c = (drawn(batch, seed) for seed in range(3))
    one = Similarity.identity(*batch)
    same((a @ b) @ c, a @ (b @ c))
    same(a @ one, a)
    same(one @ a, a)
    same(a @ a.inverse(), one)
    same(a.inverse() @ a, one)
    same(a.inverse().inverse(), a)
    same(a.relative_to(b), b.inverse() @ a)
    np.testing.assert_allclose((a @ b).matrix(), a.matrix() @ b.matrix(), atol=1e-11)


@pytest.mark.parametrize("batch", BATCHES)
def test_points_move_as_the_matrix_says(batch):
    a, b = drawn(batch, 3), drawn(batch, 4)
    points = np.random.default_rng(5).normal(size=(*batch, 7, 3))
    homogeneous = np.concatenate([points, np.ones((*batch, 7, 1))], axis=-1)
    np.testing.assert_allclose(a.apply(points), (homogeneous @ a.matrix().swapaxes(-1, -2))[..., :3], atol=1e-12)
    np.testing.assert_allclose(a.observe(a.apply(points)), points, atol=1e-12)
    np.testing.assert_allclose((a @ b).apply(points), a.apply(b.apply(points)), atol=1e-11)
    alone = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(a.apply(alone), a.apply(alone[None])[..., 0, :])
    assert a.apply(alone).shape == (*batch, 3)
    assert a.observe(alone).shape == (*batch, 3)


@given(
    st.floats(0, np.pi),
    st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda axis: np.linalg.norm(axis) > 1e-3),
    st.floats(1e-3, 1e3),
)
def test_scipy_agrees_at_every_angle(angle, axis, scale):
    turn = Rotation.from_rotvec(angle * np.array(axis) / np.linalg.norm(axis))
    ours = Similarity(turn.as_matrix(), np.array([1.0, 2.0, 3.0]), scale)
    wxyz = ours.wxyz
    assert wxyz[0] >= 0
    np.testing.assert_allclose(np.linalg.norm(wxyz), 1, atol=1e-14)
    theirs = turn.as_quat(scalar_first=True)
    assert min(np.abs(wxyz - theirs).max(), np.abs(wxyz + theirs).max()) < 1e-9
    np.testing.assert_allclose(float(Similarity.identity().angle_to(ours)), turn.magnitude(), atol=1e-9)
    same(Similarity.from_wxyz(wxyz, ours.translation, scale), ours, 1e-10 * max(1, scale))
    same(Similarity.from_matrix(ours.matrix()), ours, 1e-10 * max(1, scale))


@given(st.floats(-1e-6, 1e-6), st.integers(0, 2))
def test_small_angles_are_told_apart_from_none(angle, axis):
    vector = np.zeros(3)
    vector[axis] = angle
    ours = Similarity(Rotation.from_rotvec(vector).as_matrix())
    np.testing.assert_allclose(float(ours.angle_to(Similarity.identity())), abs(angle), rtol=1e-6, atol=1e-22)
    np.testing.assert_allclose(ours.wxyz[1 + axis], angle / 2, rtol=1e-6, atol=1e-22)


def test_half_turns_have_a_quaternion():
    for axis in np.eye(3):
        ours = Similarity(Rotation.from_rotvec(np.pi * axis).as_matrix())
        np.testing.assert_allclose(np.abs(ours.wxyz[1:]), axis, atol=1e-12)
        np.testing.assert_allclose(float(ours.angle_to(Similarity.identity())), np.pi, atol=1e-12)


def test_arguments_are_broadcast_and_kept_in_double_precision():
    found = Similarity(np.eye(3, dtype=np.float32), np.zeros((4, 3), dtype=np.float32), 2)
    assert found.shape == (4,)
    assert found.rotation.shape == (4, 3, 3)
    assert {array.dtype for array in (found.rotation, found.translation, found.scale)} == {np.dtype(np.float64)}


def test_indexing_takes_leading_dimensions():
    batch = drawn((2, 3))
    assert batch[0].shape == (3,)
    assert batch[1, 2].shape == ()
    assert batch[:, 1:].shape == (2, 2)
    assert batch[..., 0].shape == (2,)
    assert batch[np.array([[True, False, True], [False, False, False]])].shape == (2,)
    same(batch[1, 2], Similarity.from_matrix(batch.matrix()[1, 2]))
    same(batch[..., 0], Similarity.from_matrix(batch.matrix()[:, 0]))
    same(batch[0][[2, 0]], Similarity.from_matrix(batch.matrix()[0, [2, 0]]))
    same(concatenate([batch[0], batch[1]])[3], batch[1, 0])
    assert len(batch) == 2
    with pytest.raises(TypeError):
        batch[0, 0][0]
    with pytest.raises(TypeError):
        len(batch[0, 0])


def test_repr_says_what_it_is():
    turn = Similarity(Rotation.from_rotvec([0, 0, np.pi / 2]).as_matrix(), [1, 2, 3])
    assert repr(turn) == "Similarity(translation (1, 2, 3), wxyz (0.707107, 0.000000, 0.000000, 0.707107))"
    assert repr(Similarity(np.eye(3), [0, 0, 0], 2.5)).endswith("scale 2.5)")
    assert repr(drawn((2, 3))) == "Similarity(batch [2, 3])"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Similarity.from_matrix(np.eye(3)), "[..., 4, 4]"),
        (lambda: Similarity.from_matrix(np.diag([1.0, 1, -1, 1])), "reflection"),
        (lambda: Similarity.from_matrix(np.zeros((4, 4))), "singular"),
        (lambda: Similarity.from_matrix(np.full((4, 4), np.nan)), "finite"),
        (lambda: Similarity.from_matrix(np.diag([1.0, 2, 1, 1])), "axes differently"),
        (lambda: Similarity.from_matrix(np.eye(4) + 0.1 * np.eye(4)[3][:, None]), "last row"),
        (lambda: Similarity.from_wxyz(np.zeros(4)), "not zero"),
        (lambda: Similarity.from_wxyz(np.zeros(3)), "(w, x, y, z)"),
        (lambda: Similarity(np.eye(4)), "[..., 3, 3]"),
        (lambda: Similarity(np.zeros((2, 3, 3)), np.zeros((3, 3))), "leading dimensions"),
        (lambda: Similarity.identity().apply(np.zeros((5, 2))), "[5, 2]"),
        (lambda: Similarity.identity().apply("mesh.obj"), "of numbers"),
    ],
)
def test_what_is_no_similarity_is_refused(make, says):
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert says in str(caught.value)
