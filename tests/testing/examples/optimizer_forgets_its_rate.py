"""Broken on purpose: the step size is fixed when the optimizer is made, so that schedules have no effect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions


class FixedRate(torch.optim.Optimizer):
    """w ← w − rate · g."""

    def __init__(self, value: Tensor, rate: float) -> None:
        super().__init__([value], {"lr": rate})
        self._rate = rate

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for value in self.param_groups[0]["params"]:
            value.sub_(value.grad, alpha=self._rate)


class ForgetsItsRate(KeyStep):
    """Plain gradient descent."""

    @dataclass(frozen=True, slots=True)
    class Options(OptimizerOptions):
        """Those of all optimizers."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return FixedRate(value, options.learning_rate)
