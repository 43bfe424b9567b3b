"""Table 1 trained for seconds: the settings differ as they must, runs are kept and read again."""

import io
import json
from dataclasses import replace

import pytest
from matplotlib.image import imread

from geocaps.datasets import load
from geocaps.errors import ConfigError
from geocaps.evaluation import figures
from geocaps.evaluation import table1 as module
from geocaps.evaluation.table1 import PAPER, SETTINGS, configuration, paper_table, table1, write_table1
from geocaps.model.checkpoint import read_config, save_checkpoint
from geocaps.model.config import PaperObjectConfig
from geocaps.model.config import preset as model_preset
from geocaps.training.config import PaperObjective
from tests.model.conftest import make_model
from tests.training.tiny import MODEL, write_data

PARTS = model_preset("cpu").parts


@pytest.mark.parametrize("letter", SETTINGS)
def test_settings_at_small_sizes_keep_the_papers_choices(letter):
    small, paper = configuration(letter, PARTS, paper_sizes=False), configuration(letter, PARTS, paper_sizes=True)
    assert paper.model.object.width == 1024
    assert small.model.object.width < 1024
    assert paper.objective.weights.part == 1
    assert isinstance(small.objective, PaperObjective)
    assert isinstance(small.model.object, PaperObjectConfig)
    assert small.model.parts == paper.model.parts == PARTS
    for name in ("noise_from", "noise_to"):
        assert getattr(small.objective, name) == getattr(paper.objective, name)
    for name in ("views", "voting_steps"):
        assert getattr(small.model.object, name) == getattr(paper.model.object, name)


def test_settings_differ_as_in_the_paper():
    configs = {letter: configuration(letter, PARTS, paper_sizes=False) for letter in SETTINGS}
    assert [config.model.object.views for config in configs.values()] == [1, 2, 4, 4, 4]
    assert [config.model.object.voting_steps for config in configs.values()] == [1, 1, 1, 1, 3]
    assert [config.objective.noise_to for config in configs.values()] == [45, 45, 45, 180, 180]


@pytest.mark.slow
def test_table1_trains_then_reads(tmp_path, monkeypatch):
    """The real training loop on a tiny model: seconds instead of minutes."""
    made = module.configuration

    def tiny(letter, first_layer, paper_sizes):
        config = made(letter, first_layer, paper_sizes)
        model = replace(config.model, points=64, object=replace(
            config.model.object, feature=16, width=16, blocks=1, decoder_width=16, decoder_blocks=1
        ))  # fmt: skip
        return replace(
            config,
            model=model,
            object=replace(config.object, batch=4, warmup=0),
            objective=replace(config.objective, reuse=2, target_points=32),
            validation_objects=2,
            validations=1,
            tensorboard=False,
        )

    monkeypatch.setattr(module, "configuration", tiny)
    data = write_data(tmp_path / "ellipsoids.npz")
    dataset = load(data).subset(range(4))
    said = []
    first_layer = save_checkpoint(tmp_path / "first", make_model(MODEL), card="untrained")
    options = {"budget": 0.05, "weights": str(first_layer), "train_data": str(data), "points": 64, "say": said.append}
    rows = table1(dataset, tmp_path / "runs", **options)
    assert list(rows) == list(SETTINGS)
    assert sum("training" in sentence for sentence in said) == 5
    for letter, row in rows.items():
        assert 0 <= row.summary["rae_mean"] <= 1
        assert row.steps >= 1
        assert read_config(tmp_path / "runs" / letter / "last").object.views == [1, 2, 4, 4, 4]["ABCDE".index(letter)]
    fixed = table1(dataset, tmp_path / "fixed", **options | {"steps": 2, "settings": ["A", "E"]})
    assert {letter: row.steps for letter, row in fixed.items()} == {"A": 2, "E": 2}
    said.clear()
    again = table1(dataset, tmp_path / "runs", **options)
    assert sum("read as it is" in sentence for sentence in said) == 5
    assert not any("training" in sentence for sentence in said)
    assert {letter: _still(row) for letter, row in again.items()} == {
        letter: _still(row) for letter, row in rows.items()
    }
    some = table1(dataset, tmp_path / "runs", **options | {"settings": ["B", "D"]})
    assert list(some) == ["B", "D"]
    with pytest.raises(ConfigError, match="was begun with seed = 0, not 5"):
        table1(dataset, tmp_path / "runs", **options | {"seed": 5})
    text = paper_table(rows, dataset).markdown()
    assert all(f"{PAPER[letter]['rae_mean']:.3f} → " in text for letter in SETTINGS)
    assert "chance" in text
    picture = figures.settings({letter: row.model for letter, row in rows.items()}, dataset, points=64, seed=0)
    assert imread(io.BytesIO(picture)).shape[1] > 6 * 100  # the inputs and a panel for each setting
    written = write_table1(rows, dataset, picture, tmp_path / "runs")
    assert (tmp_path / "runs" / "settings.png").read_bytes() == picture
    assert json.loads((tmp_path / "runs" / "table1.json").read_text()) == written
    assert written["settings"]["E"]["paper"]["top1"] == 0.943
    assert (tmp_path / "runs" / "table1.md").read_text().startswith("**Table 1")


def _still(row):
    return json.dumps({name: value for name, value in row.summary.items() if "milliseconds" not in name}), row.steps
