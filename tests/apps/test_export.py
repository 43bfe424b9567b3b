"""The ONNX graph gives what the model gives."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

import geocaps
from geocaps import cli
from geocaps.apps.encoding import ENCODED, encoded_columns
from geocaps.apps.export import TOLERANCE, DenseEncoder, export_onnx, jacobi_eigh
from geocaps.data.synthetic import make_shape
from geocaps.errors import ExportError, MissingExtraError, UsageError
from geocaps.geometry import frames
from geocaps.model.autoencoder import GeometricCapsuleAutoencoder
from geocaps.model.checkpoint import save_checkpoint
from geocaps.model.config import PaperObjectConfig, preset

POINTS = 96


def sample(name, count, seed=0):
    return make_shape(name, seed).sample(count, torch.Generator().manual_seed(seed)).points.numpy()


def assert_equal(found, encoding, tolerance=TOLERANCE):
    """To the tolerance, in units of each output's size; of the labels, all but points on a border."""
    for name, expected in encoded_columns(encoding).items():
        if name == "labels":
            assert (found[name] != expected).mean() < 0.01
        else:
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(found[name] / scale, expected / scale, atol=tolerance, rtol=0, err_msg=name)


def small_config():
    cpu = preset("cpu")
    return replace(
        cpu,
        points=128,
        parts=replace(cpu.parts, parts=6, iterations=1, decoded=16, width=16),
        object=replace(cpu.object, width=32, feature=24),
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small model with one iteration: the graph of the shipped one takes a minute to trace."""
    torch.manual_seed(0)
    return save_checkpoint(
        tmp_path_factory.mktemp("weights") / "small", GeometricCapsuleAutoencoder(small_config()), card=""
    )


@pytest.fixture(scope="module")
def few_steps():
    """Fewer steps of ascent, in the model and in the graph alike: each is a hundred operators more to trace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_ASCENT_STEPS", 2)
        yield


@pytest.fixture(scope="module")
def exported(weights, few_steps, tmp_path_factory):
    """What the command says of the file that it wrote: tracing is slow, so it is done once."""
    out = tmp_path_factory.mktemp("onnx") / "encoder.onnx"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cli.run(["export", "--onnx", str(out), "--weights", str(weights), "--points", str(POINTS), "--json"])
    assert code == 0
    return json.loads(said.getvalue())


@pytest.mark.slow
def test_onnxruntime_gives_what_the_model_gives(exported, weights):
    model = geocaps.load(weights)
    session = onnxruntime.InferenceSession(exported["out"], providers=["CPUExecutionProvider"])
    assert exported["difference"] <= TOLERANCE
    assert exported["points"] == POINTS
    assert exported["bytes"] == os.path.getsize(exported["out"])
    for name in ("car", "bottle", "sofa"):
        cloud = sample(name, POINTS, seed=5) * 20 - 7
        found = dict(zip(ENCODED, session.run(None, {"points": cloud}), strict=True))
        assert_equal(found, model.encode(cloud))


@pytest.mark.parametrize("name", ["chair", "mug", "airplane", "bed"])
def test_the_dense_encoder_is_the_shipped_model(name):
    """All three iterations and the trained weights, in torch: what is traced is what the product computes.

    To 3e-4: where two parts nearly tie for a point, rounding moves its share a little in each of the three iterations.
    """
    model = geocaps.load()
    cloud = sample(name, model.config.points) * 3 + 1
    with torch.no_grad():
        values = DenseEncoder(model.network)(torch.from_numpy(cloud))
    found = {key: value.numpy() for key, value in zip(ENCODED, values, strict=True)}
    assert_equal(found, model.encode(cloud), tolerance=3 * TOLERANCE)


@pytest.mark.parametrize("kind", ["strewn", "repeated"])
def test_the_dense_encoder_knows_strays_and_copies(kind, weights):
    model, cloud = geocaps.load(weights), sample("chair", 80)
    strays = np.random.default_rng(0).uniform(-4, 4, (12, 3)).astype(np.float32)
    cloud = np.concatenate([cloud, strays]) if kind == "strewn" else np.repeat(cloud[:25], 5, axis=0)
    with torch.no_grad():
        values = DenseEncoder(model.network)(torch.from_numpy(cloud))
    expected = model.encode(cloud)
    assert (expected.labels == -1).any() == (kind == "strewn")
    assert_equal({key: value.numpy() for key, value in zip(ENCODED, values, strict=True)}, expected)


def test_jacobi_is_eigh():
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(500, 3, 3, generator=generator, dtype=torch.float64)
    special = torch.stack([torch.eye(3), torch.zeros(3, 3), torch.diag(torch.tensor([3.0, 1, 2])), torch.ones(3, 3)])
    for matrices in (random @ random.mT, random + random.mT, special.double(), 1e-9 * (random + random.mT)):
        values, vectors = jacobi_eigh(matrices)
        size = matrices.abs().amax()
        torch.testing.assert_close(values, torch.linalg.eigvalsh(matrices), atol=1e-13 * float(size) * 10, rtol=0)
        torch.testing.assert_close(vectors @ torch.diag_embed(values) @ vectors.mT, matrices, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(vectors.mT @ vectors, torch.eye(3).double().expand_as(vectors), atol=1e-12, rtol=0)


def test_what_cannot_be_exported_is_refused_and_nothing_is_lost(weights, tmp_path, monkeypatch):
    torch.manual_seed(0)
    config = small_config()
    random = replace(config, object=PaperObjectConfig(feature=24, width=32, decoder_width=32))
    other = save_checkpoint(tmp_path / "random", GeometricCapsuleAutoencoder(random), card="")
    out = tmp_path / "there.onnx"
    out.write_bytes(b"kept")
    for error, place, options in (
        (UsageError, tmp_path / "out.pt", {}),
        (UsageError, tmp_path / "nowhere" / "out.onnx", {}),
        (UsageError, out, {"points": 5}),
        (UsageError, out, {"points": 129}),
        (ExportError, out, {"weights": other}),
    ):
        with pytest.raises(error):
            export_onnx(place, **{"weights": weights, **options})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"\.\[onnx\]"):
        export_onnx(out, weights=weights)
    assert out.read_bytes() == b"kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["random", "there.onnx"]


def test_the_verb_says_what_was_wrong(capsys, weights, tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    for name, sentence in (
        ("out.pt", "must end in .onnx"),
        ("nowhere/out.onnx", f"the folder {tmp_path / 'nowhere'} does not exist"),
        ("folder.onnx", "a folder has this name"),
    ):
        assert cli.run(["export", "--onnx", str(tmp_path / name), "--weights", str(weights), "--json"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert sentence in captured.err
