"""Training: models learn; shapes without numbers; a step by segments, and a checkpoint, change no bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.training.learner import State, values_sha256
from testbed.training.models import shape_of_model
from testbed.training.optimizers import ModelOptimizer
from testbed.training.shape_trainer import ShapeTrainer
from testbed.training.trainer import Trainer
from tests.for_each import for_each
from tests.training.jobs import JOBS, same_bits, trainer_for


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


@for_each("job", JOBS)
def test_segments_give_the_gradient_of_the_whole(job: str, tmp_path: Path) -> None:
    trainer = trainer_for(job, tmp_path)
    whole = trainer.gradient(5)
    step = trainer.begin(5)
    count = len(trainer.shape.segments)
    for index in range(count):
        step.forward_segment(index)
    pieces = [step.backward_segment(index) for index in reversed(range(count))]
    gradients = [gradient for piece in reversed(pieces) for gradient in piece]
    assert same_bits(gradients, whole.gradients)
    assert step.loss == whole.loss
    assert step.samples == whole.samples == 8
    assert all(bool(gradient.abs().sum() > 0) for gradient in gradients)


def test_the_next_step_may_begin_while_later_segments_wait_for_their_values(tmp_path: Path) -> None:
    """P3's overlap: segment 0 runs forward at new values before segment 1 has its own."""
    overlapped, plain = trainer_for("mlp", tmp_path), trainer_for("mlp", tmp_path)
    fresh = [value + 0.01 for value in plain.values()]
    plain.load(fresh)
    expected = plain.gradient(1)
    step = overlapped.begin(1)
    for index, keys in enumerate(overlapped.shape.keys):
        overlapped.load_segment(index, [fresh[key] for key in keys])
        step.forward_segment(index)
    pieces = [step.backward_segment(index) for index in (2, 1, 0)]
    assert same_bits([gradient for piece in reversed(pieces) for gradient in piece], expected.gradients)


def through_a_file(state: State) -> State:
    """As a checkpoint does it; nothing but tensors and numbers may be in it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: State = torch.load(file, weights_only=True)
    return loaded


def train(trainer: Trainer, optimizer: ModelOptimizer, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.step(trainer.gradient(step).gradients)
        trainer.load(optimizer.values())


@for_each("job", ["cnn", "transformer"])
def test_a_worker_with_its_own_optimizer_resumes_bit_for_bit(job: str, tmp_path: Path) -> None:
    def start(seed: int) -> tuple[Trainer, ModelOptimizer]:
        trainer = trainer_for(job, tmp_path, seed=seed)
        return trainer, ModelOptimizer("adam", {"learning_rate": 0.01}, trainer.values())

    uninterrupted = start(1)
    train(*uninterrupted, 0, 6)
    trainer, optimizer = start(1)
    train(trainer, optimizer, 0, 3)
    kept = through_a_file(trainer.state()), through_a_file(optimizer.state())
    resumed = start(2)
    for owner, state in zip(resumed, kept, strict=True):
        owner.load_state(state)
    train(*resumed, 3, 6)
    assert values_sha256(resumed[0].values()) == values_sha256(uninterrupted[0].values())


def other_model(folder: Path) -> Trainer:
    return trainer_for("lenet", folder)


def other_share(folder: Path) -> Trainer:
    return trainer_for("cnn", folder, rank=1)


@for_each(("other", "message"), [(other_model, "another model"), (other_share, "other training data")])
def test_a_foreign_checkpoint_is_refused(other: Callable[[Path], Trainer], message: str, tmp_path: Path) -> None:
    state = trainer_for("cnn", tmp_path).state()
    with pytest.raises(ScenarioError, match=message):
        other(tmp_path).load_state(state)
