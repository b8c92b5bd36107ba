"""Measures the forward and backward times of a model's layers on a device, and the time of a whole step.

All are medians of several steps. On a GPU they are measured between events, on a core as processor time, so that other
work on the machine has no effect. The time of a step beyond its layers (batch, reading the loss) is added to the first
layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from testbed.devices.accelerator import accelerator_of
from testbed.engine.learner import make_learner
from testbed.plan.model import Plan
from testbed.training.learner import SegmentedLearner
from testbed.training.models import segments
from testbed.training.trainer import Trainer

WARM_UP = 3
Timed = Callable[[Callable[[], Any]], tuple[Any, float]]


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profile of a model.

    layers  name, forward time (s) and backward time (s) of each layer
    step_s  duration of a whole step: the sum of these times
    """

    layers: tuple[tuple[str, float, float], ...]
    step_s: float

    def text(self, about: str) -> str:
        """Return the content of a file for ``device.profile``; ``about`` is its comment."""
        rows = [f"{name},{forward_s * 1e6:.6g},{backward_s * 1e6:.6g}" for name, forward_s, backward_s in self.layers]
        return "\n".join([f"# {about}", "segment,forward_us,backward_us", *rows]) + "\n"


def profile(plan: Plan, repeats: int = 20) -> ModelProfile:
    """Measure the first worker's model on its device."""
    torch.set_num_threads(1)
    trainer = make_learner(plan, plan.with_role("worker")[0])
    assert isinstance(trainer, Trainer), "samples are in memory"
    accelerator = accelerator_of(trainer.device)
    timed = accelerator.timed if accelerator else timed_on_core
    names = [segment.name for segment in segments(trainer.model)]
    wholes: list[float] = []
    steps: list[list[tuple[float, float]]] = []
    for number in range(WARM_UP + repeats):  # alternating, so that other work on the machine affects both alike
        wholes.append(timed(partial(trainer.gradient, number))[1])
        steps.append(_step(trainer, number, len(names), timed))
    forward = [median(step[index][0] for step in steps[WARM_UP:]) for index in range(len(names))]
    backward = [median(step[index][1] for step in steps[WARM_UP:]) for index in range(len(names))]
    step_s = median(wholes[WARM_UP:])
    measured_s = sum(forward) + sum(backward)
    if step_s >= measured_s:
        forward[0] += step_s - measured_s
    else:  # small layers take longer when they are measured one by one
        forward, backward = ([each * step_s / measured_s for each in times] for times in (forward, backward))
    return ModelProfile(tuple(zip(names, forward, backward, strict=True)), step_s)


def _step(trainer: SegmentedLearner, number: int, count: int, timed: Timed) -> list[tuple[float, float]]:
    step = trainer.begin(number)
    forward = [timed(partial(step.forward_segment, index))[1] for index in range(count)]
    backward = [timed(partial(step.backward_segment, index))[1] for index in reversed(range(count))]
    return list(zip(forward, reversed(backward), strict=True))


def timed_on_core(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call the function; return its result, and the processor time of this thread that it took (s)."""
    begin_s = time.thread_time()
    return function(), time.thread_time() - begin_s
