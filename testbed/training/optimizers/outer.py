"""Nesterov's momentum in three definitions, and delayed Nesterov. Outer gradients are old values minus new ones.

Papers define Nesterov's momentum differently, so hyper-parameters of one definition do not suit another:

    torch      m ← β m + g;           θ ← θ − lr (g + β m)            PyTorch, and so DiLoCo's code
    sutskever  v ← β v − lr g;        θ ← θ + β v − lr g              Sutskever et al., ICML 2013, as in Keras
    averaged   m ← β m + (1 − β) g;   θ ← θ − lr ((1 − β) g + β m)    a mean instead of a sum, as in Muon's code

The first two differ only if the step size changes; the third has a step size smaller by the factor 1 − β. Some code
says Nesterov, but uses heavy-ball momentum, m ← β m + g and θ ← θ − lr m, which is ``sgd`` with ``momentum`` here.

Delayed Nesterov (Liu et al., Asynchronous Local-SGD training for language modeling, 2024, arXiv 2401.09135) is for
contributions that are applied one by one. With a buffer of N contributions and a spread c, as in the code of HALoS:

    every N-th   m ← β m + Δ/N;       θ ← θ − lr ((1 − c N + c) β m + g/N);   Δ is the sum of the last N g
    the others                        θ ← θ − lr (c β m + g/N)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.training.options.optimizers import SUTSKEVER, DelayedNesterov, Nesterov


class OtherNesterov(torch.optim.Optimizer):
    """Nesterov's momentum as ``sutskever`` or ``averaged``. For PyTorch's definition, use ``torch.optim.SGD``."""

    def __init__(self, options: Nesterov, value: Tensor) -> None:
        super().__init__([value], {"lr": options.learning_rate})
        self._options = options

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        (value,) = group["params"]
        momentum = self._options.momentum
        memory = self.state[value].setdefault("momentum", torch.zeros_like(value))
        if self._options.definition == SUTSKEVER:
            memory.mul_(momentum).sub_(value.grad, alpha=group["lr"])
            value.add_(memory, alpha=momentum).sub_(value.grad, alpha=group["lr"])
        else:
            memory.mul_(momentum).add_(value.grad, alpha=1 - momentum)
            value.sub_(memory, alpha=group["lr"] * momentum).sub_(value.grad, alpha=group["lr"] * (1 - momentum))


class BufferedNesterov(torch.optim.Optimizer):
    """Delayed Nesterov for one key."""

    def __init__(self, options: DelayedNesterov, value: Tensor) -> None:
        super().__init__([value], {"lr": options.learning_rate})
        self._options = options

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        (value,) = group["params"]
        buffer = self._options.buffer
        spread = self._options.spread
        state = self.state[value]
        if not state:
            state["momentum"] = torch.zeros_like(value)
            state["sum"] = torch.zeros_like(value)
            state["count"] = 0
        state["sum"].add_(value.grad)
        state["count"] += 1
        share = spread
        if state["count"] == buffer:
            state["momentum"].mul_(self._options.momentum).add_(state["sum"], alpha=1 / buffer)
            state["sum"].zero_()
            state["count"] = 0
            share = 1 - spread * buffer + spread
        value.sub_(state["momentum"], alpha=group["lr"] * share * self._options.momentum)
        value.sub_(value.grad, alpha=group["lr"] / buffer)
