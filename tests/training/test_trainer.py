"""The trainer: same seed, same bits; scores beside the training; shapes without numbers; devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.training.learner import values_sha256
from testbed.training.models import shape_of_model
from testbed.training.optimizers import ModelOptimizer
from testbed.training.shape_trainer import ShapeTrainer
from tests.training.jobs import trainer_for


# Chance is 0.1 for digits and teacher; the fox's characters are certain but for the first few of a window.
@pytest.mark.parametrize(
    ("job", "steps", "accuracy"),
    [("cnn", 120, 0.8), pytest.param("lenet", 150, 0.75, marks=pytest.mark.slow), ("transformer", 60, 0.7)],
)
def test_models_learn(job: str, steps: int, accuracy: float, tmp_path: Path) -> None:
    trainer = trainer_for(job, tmp_path)
    optimizer = ModelOptimizer("adam", {"learning_rate": 0.005}, trainer.values())
    before = trainer.evaluate(trainer.values())
    for step in range(steps):
        optimizer.step(trainer.gradient(step).gradients)
        trainer.load(optimizer.values())
    after = trainer.evaluate(trainer.values())
    assert before.accuracy < 0.3
    assert after.accuracy > accuracy
    assert after.loss < before.loss


def test_shapes_without_numbers_have_the_same_keys_and_segments(tmp_path: Path) -> None:
    real = trainer_for("cnn", tmp_path)
    shapes = ShapeTrainer(shape_of_model("cnn", {}, (1, 8, 8), 10), batch_size=8)
    assert shapes.sizes == real.sizes
    assert shapes.shape.segments == real.shape.segments
    assert [gradient.numel() for gradient in shapes.gradient(0).gradients] == list(real.sizes)
    step = shapes.begin(0)
    for index in range(5):
        step.forward_segment(index)
    assert [gradient.numel() for gradient in step.backward_segment(4)] == [1280, 10]
    assert all(value.is_meta for value in shapes.values())
    assert values_sha256(shapes.values()) is None
    assert shapes.evaluate(shapes.values()) is None
