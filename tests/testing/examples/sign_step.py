"""Sign descent with momentum (Bernstein et al., signSGD, ICML 2018: Signum): every element moves by the rate."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions


class Signum(torch.optim.Optimizer):
    """m ← β m + (1 − β) g; w ← w − lr · sign m."""

    def __init__(self, value: Tensor, momentum: float) -> None:
        super().__init__([value], {"lr": 0.0, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for value in group["params"]:
                state = self.state[value]
                mean = state.setdefault("mean", torch.zeros_like(value))
                mean.lerp_(value.grad, 1 - group["momentum"])
                value.sub_(mean.sign(), alpha=group["lr"])


class SignStep(KeyStep):
    """Signum on every key."""

    @dataclass(frozen=True, slots=True)
    class Options(OptimizerOptions):
        """``momentum``: β; ``at``: workers may run it, too. Schedule and clipping are those of all optimizers."""

        momentum: float = field(default=0.9, metadata={"help": "weight of the past", "min": 0, "max": 0.9999})
        at: str = field(default="auto", metadata={"help": "where it runs", "choices": ("auto", "global", "worker")})

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return Signum(value, options.momentum)
