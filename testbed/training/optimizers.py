"""Optimizers by name, one instance per key, so that keys may live on different servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from testbed.training.options import OPTIMIZERS, Adam, Sgd


def _sgd(options: Sgd, value: Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD([value], lr=options.learning_rate, momentum=options.momentum, foreach=False)


def _adam(options: Adam, value: Tensor) -> torch.optim.Optimizer:
    betas = (options.beta1, options.beta2)
    return torch.optim.Adam([value], lr=options.learning_rate, betas=betas, eps=options.epsilon, foreach=False)


_MAKERS: dict[str, Callable[[Any, Tensor], torch.optim.Optimizer]] = {"sgd": _sgd, "adam": _adam}


class KeyOptimizer:
    """The value of one key and the optimizer state that goes with it. ``value`` is changed in place."""

    def __init__(self, kind: str, options: dict[str, Any], value: Tensor) -> None:
        self.value = value.detach().clone()
        self._optimizer = _MAKERS[kind](OPTIMIZERS[kind](**options), self.value)

    def step(self, gradient: Tensor) -> None:
        """One step along ``gradient`` (flat float32, the size of the value)."""
        if self.value.is_meta:
            return
        self.value.grad = gradient
        self._optimizer.step()
        self.value.grad = None
