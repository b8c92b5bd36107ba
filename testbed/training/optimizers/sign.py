"""Sign descent (Bernstein et al., signSGD, ICML 2018), with decoupled weight decay: DeMo's step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class SignDescent(torch.optim.Optimizer):
    """θ ← (1 − lr · decay) θ − lr sign g."""

    def __init__(self, value: Tensor, weight_decay: float) -> None:
        super().__init__([value], {"lr": 0.0, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        (value,) = group["params"]
        value.mul_(1 - group["lr"] * group["weight_decay"]).sub_(value.grad.sign(), alpha=group["lr"])
