"""An outer step with heavy-ball momentum that is shortened while changes of models disagree with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.axes import option
from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions


class Trusting(torch.optim.Optimizer):
    """m ← β m + Δ; θ ← θ − lr m, of elements where m and Δ have one sign, elsewhere θ − lr Δ."""

    def __init__(self, value: Tensor, momentum: float) -> None:
        super().__init__([value], {"lr": 0.0, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for value in group["params"]:
                memory = self.state[value].setdefault("momentum", torch.zeros_like(value))
                memory.mul_(group["momentum"]).add_(value.grad)
                value.sub_(torch.where(memory * value.grad > 0, memory, value.grad), alpha=group["lr"])


class TrustingStep(KeyStep):
    """For ``outer_optimizer``, or any other place."""

    @dataclass(frozen=True, slots=True)
    class Options(OptimizerOptions):
        """``momentum``: β. Schedule and warm-up are those of all optimizers."""

        momentum: float = option(0.5, "weight of the past", min=0, max=0.9999)

    @staticmethod
    def make(options: Any, value: Tensor, *shape: Any) -> torch.optim.Optimizer:
        return Trusting(value, options.momentum)
