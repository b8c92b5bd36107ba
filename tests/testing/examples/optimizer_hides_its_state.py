"""Broken on purpose: momentum is kept outside the optimizer's state, so that checkpoints do not have it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions


class HiddenMomentum(torch.optim.Optimizer):
    """m ← 0.9 m + g; w ← w − lr · m."""

    def __init__(self, value: Tensor) -> None:
        super().__init__([value], {"lr": 0.0})
        self._momentum = torch.zeros_like(value)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for value in self.param_groups[0]["params"]:
            self._momentum.mul_(0.9).add_(value.grad)
            value.sub_(self._momentum, alpha=self.param_groups[0]["lr"])


class HidesItsState(KeyStep):
    """Heavy ball."""

    @dataclass(frozen=True, slots=True)
    class Options(OptimizerOptions):
        """Those of all optimizers."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return HiddenMomentum(value)
