"""LARS: the step of a tensor is scaled by the ratio of its norm to its gradient's (You, Gitman, Ginsburg, 2017)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Norms(NamedTuple):
    """L2 norms of a whole tensor and of its whole gradient, for a key that is a slice of it."""

    value: float
    gradient: float


class Lars(torch.optim.Optimizer):
    """Algorithm 1 of the paper: v ← m·v + η·λ·(g + β·w), w ← w − v, with λ = trust·‖w‖ / (‖g‖ + β·‖w‖).

    λ is 1 where a norm is 0 (biases start at 0), and for tensors with fewer than ``adapt_from`` elements. Norms are
    those of the given tensor, unless the group's ``norms`` gives those of the whole tensor that it is a slice of; then
    the caller applies ``adapt_from``.
    """

    def __init__(self, value: Tensor, momentum: float, weight_decay: float, trust: float, adapt_from: int) -> None:
        defaults = {
            "lr": 0.0, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt_from": adapt_from,
            "norms": None,
        }  # fmt: skip
        super().__init__([value], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        (value,) = group["params"]
        gradient = value.grad
        direction = gradient.add(value, alpha=group["weight_decay"]).mul_(group["lr"] * _ratio(group, value, gradient))
        state = self.state[value]
        if "momentum_buffer" in state:
            direction = state["momentum_buffer"].mul_(group["momentum"]).add_(direction)
        state["momentum_buffer"] = direction
        value.sub_(direction)


def norms_of(value: Tensor, gradient: Tensor) -> Norms:
    """Return the norms of these tensors."""
    return Norms(torch.linalg.vector_norm(value).item(), torch.linalg.vector_norm(gradient).item())


def _ratio(group: dict[str, Any], value: Tensor, gradient: Tensor) -> float:
    norms = group["norms"]
    if norms is None:
        if value.numel() < group["adapt_from"]:
            return 1.0
        norms = norms_of(value, gradient)
    if norms.value == 0 or norms.gradient == 0:
        return 1.0
    return float(group["trust"] * norms.value / (norms.gradient + group["weight_decay"] * norms.value))
