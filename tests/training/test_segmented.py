"""A step done segment by segment is the step, bit for bit."""

from __future__ import annotations

from pathlib import Path

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
