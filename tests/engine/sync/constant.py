"""Workers whose gradients are known numbers, so that a test can say what every synchronisation must come to.

Worker ``rank`` (over all workers) begins with values of its own, and its gradient is the same at every value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.engine import roles
from testbed.engine.roles import make_role
from testbed.key_shape import KeyShape
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.scenario.load import load
from testbed.training.learner import Score, State, StepResult
from testbed.training.shapes import ModelShape, SegmentShape
from tests.engine.runs import THREE_SITES, Simulated, run
from tests.realtime.in_process import InProcess

SIZES = (3, 2)
GradientOf = Callable[[int, list[Tensor]], float]  # rank, current values


class ConstantLearner:
    """Two keys; every element of the gradient is ``gradient_of(rank, values)``."""

    sizes = SIZES
    shapes = tuple(KeyShape((size,)) for size in SIZES)
    epoch = 0

    def __init__(self, rank: int, gradient_of: GradientOf) -> None:
        self._rank, self._gradient_of = rank, gradient_of
        self._values = [torch.full((size,), float(rank)) for size in SIZES]

    @property
    def shape(self) -> ModelShape:
        return ModelShape("constant", (SegmentShape("all", SIZES, 1, 1),))

    def gradient(self, step: int) -> StepResult:
        number = float(self._gradient_of(self._rank, self._values))
        return StepResult(0.0, 1, [torch.full((size,), number) for size in SIZES])

    def values(self) -> list[Tensor]:
        return [value.clone() for value in self._values]

    def load(self, values: list[Tensor]) -> None:
        self._values = [value.clone() for value in values]

    def epoch_of(self, step: int) -> int:
        return 0

    def evaluate(self, values: list[Tensor]) -> Score | None:
        return None

    def state(self) -> State:
        return {}


def use_constants(monkeypatch: pytest.MonkeyPatch, gradient_of: GradientOf) -> None:
    """From now on, workers train on constants."""

    def make(plan: Plan, node: NodePlan) -> Any:
        return ConstantLearner(node.rank, gradient_of)

    monkeypatch.setattr(roles, "make_learner", make)


def over_sockets(*overrides: str) -> Simulated:
    """The same as ``run``, but in real time, over real sockets on loopback."""
    plan, nodes = build_plan(load(THREE_SITES, overrides), "local"), InProcess()
    results = nodes({node.name: make_role(plan, node) for node in plan.nodes}, plan)
    events = [{"node": name, **event} for name, log in nodes.logs.items() for event in log.events]
    return Simulated(plan, results, sorted(events, key=lambda event: event["t"]))


def everywhere(world: str, directory: Path, *overrides: str) -> Simulated:
    """In the world of that name: ``virtual`` or ``sockets``."""
    return over_sockets(*overrides) if world == "sockets" else run(directory, *overrides)


def the_number(values: list[Tensor]) -> float:
    """The one number that all elements of all keys are."""
    (number,) = set(torch.cat(values).tolist())
    return float(number)
