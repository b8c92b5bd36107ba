"""The residual of one key at its sender: everything that it has not sent yet. One class per rule of accumulation.

``take`` adds a gradient to the memory, chooses entries, and removes them from it. What is chosen plus what stays is
what was there plus what came, element by element and bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from testbed.codec.selectors.sources import Feedback, Floats, Indices, Momentum, ValueSource

Select = Callable[[ValueSource, int], Indices]


class ResidualMemory(Protocol):
    """Of one key."""

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """At most k indices (ascending) and their values, on the CPU; both new."""

    def unsent(self) -> Tensor:
        """Return what has not been sent yet; for tests and analysis."""


MakeMemory = Callable[[int, torch.device], ResidualMemory]


class FeedbackMemory:
    """Error feedback: residual ← residual + gradient."""

    def __init__(self, size: int, select: Select) -> None:
        self._residual, self._select = np.zeros(size, np.float32), select

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        # some published selectors may give more than k; the message has room for k, the rest stays here
        chosen = self._select(Feedback(self._residual, numbers_of(gradient)), k)[:k]
        values = self._residual[chosen]
        self._residual[chosen] = 0
        return torch.from_numpy(chosen), torch.from_numpy(values)

    def unsent(self) -> Tensor:
        return torch.from_numpy(self._residual)


class MomentumMemory:
    """Momentum correction with factor masking: what is sent is cleared in the velocity and in the total."""

    def __init__(self, size: int, select: Select, momentum: float) -> None:
        self._velocity, self._total = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self._select, self._momentum = select, momentum

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        source = Momentum(self._velocity, self._total, numbers_of(gradient), self._momentum)
        chosen = self._select(source, k)[:k]
        values = self._total[chosen]
        self._velocity[chosen] = 0
        self._total[chosen] = 0
        return torch.from_numpy(chosen), torch.from_numpy(values)

    def unsent(self) -> Tensor:
        return torch.from_numpy(self._total)


def feedback(select: Select) -> MakeMemory:
    """Memories with error feedback, on the CPU."""
    return lambda size, device: FeedbackMemory(size, select)


def momentum_corrected(select: Select, momentum: float) -> MakeMemory:
    """Memories with momentum correction and exact selection: where the gradients are, on the CPU or on CUDA."""

    def make(size: int, device: torch.device) -> ResidualMemory:
        if device.type != "cuda":
            return MomentumMemory(size, select, momentum)
        from testbed.codec.selectors.cuda import CudaMemory  # only where there is a GPU

        return CudaMemory(size, device, momentum)

    return make


def exact_feedback(select: Select) -> MakeMemory:
    """Memories with error feedback and exact selection: where the gradients are, on the CPU or on CUDA."""

    def make(size: int, device: torch.device) -> ResidualMemory:
        if device.type != "cuda":
            return FeedbackMemory(size, select)
        from testbed.codec.selectors.cuda import CudaMemory

        return CudaMemory(size, device, momentum=None)

    return make


def numbers_of(tensor: Tensor) -> Floats:
    """A flat float32 tensor as an array; the same memory if it lies on the CPU."""
    numbers: Floats = tensor.detach().cpu().contiguous().numpy()
    return numbers
