"""What a checkpoint holds is enough to go on bit for bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.training.learner import State, values_sha256
from testbed.training.optimizers import ModelOptimizer
from testbed.training.trainer import Trainer
from tests.for_each import for_each
from tests.training.jobs import trainer_for


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
