"""Broken on purpose: the step has the length of the rate, so that slices need the whole tensor's norm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions


class Normalised(torch.optim.Optimizer):
    """w ← w − lr · g / ‖g‖."""

    def __init__(self, value: Tensor) -> None:
        super().__init__([value], {"lr": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for value in self.param_groups[0]["params"]:
            value.sub_(value.grad / (value.grad.norm() + 1e-12), alpha=self.param_groups[0]["lr"])


class Normalises(KeyStep):
    """Normalised gradient descent, without whole_tensors = True."""

    @dataclass(frozen=True, slots=True)
    class Options(OptimizerOptions):
        """Those of all optimizers."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return Normalised(value)


class NormalisesWholes(Normalises):
    """The same, and declared."""

    whole_tensors = True
