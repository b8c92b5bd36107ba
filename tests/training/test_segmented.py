"""A step done segment by segment is the step, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.for_each import for_each
from tests.training.jobs import JOBS, same_bits, trainer_for


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


def test_segments_keep_their_order(tmp_path: Path) -> None:
    step = trainer_for("mlp", tmp_path).begin(0)
    with pytest.raises(AssertionError, match="segment 1 comes after"):
        step.forward_segment(1)
    step.forward_segment(0)
    with pytest.raises(AssertionError, match="loss is not known"):
        _ = step.loss
    with pytest.raises(AssertionError, match="backward begins when"):
        step.backward_segment(0)
    step.forward_segment(1)
    step.forward_segment(2)
    with pytest.raises(AssertionError, match="segment 2 comes before 1"):
        step.backward_segment(1)


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


def test_a_segment_may_change_as_soon_as_its_own_backward_is_done(tmp_path: Path) -> None:
    trainer, whole = trainer_for("cnn", tmp_path), trainer_for("cnn", tmp_path).gradient(0)
    step, keys = trainer.begin(0), trainer.shape.keys
    for index in range(len(keys)):
        step.forward_segment(index)
    gradients: list[torch.Tensor] = []
    for index in reversed(range(len(keys))):
        gradients = step.backward_segment(index) + gradients
        trainer.load_segment(index, [torch.zeros(trainer.sizes[key]) for key in keys[index]])
    assert same_bits(gradients, whole.gradients)
    assert all(not value.any() for value in trainer.values())
