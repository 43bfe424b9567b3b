"""Train a model of your own: here a tiny one, for a few seconds; the same lines with real sizes train a real one.

`data` may be your own folder of meshes or clouds. On the command line: geocaps train --data shapes --out my_run

    python examples/05_train_your_own.py [FOLDER]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import geocaps
from geocaps.training import preset, train

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
base = preset("cpu", data="shapes", out=str(folder / "my_run"), tensorboard=False, validations=1, validation_objects=4)

small = replace(base.model, points=256, object=replace(base.model.object, feature=64, width=64))
result = train(
    replace(
        base,
        model=small,
        parts=replace(base.parts.fitted(15), batch=4),
        object=replace(base.object.fitted(15), batch=4, accumulate=1),
        objective=replace(base.objective, target_points=128, reuse=1),
    )
)
for stage, figures in result.figures.items():
    print(stage, {name: round(value, 3) for name, value in figures.items()})

model = geocaps.load(result.last)  # fifteen steps are far too few for a good one
chair = geocaps.datasets.load("shapes", per_class=1).of_classes("chair").points(0)
print("a chair's feature:", model.encode(chair).feature.shape)
