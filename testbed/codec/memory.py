"""The residual of one key at its sender: the sum of everything that the sender has not sent yet.

``take`` adds a gradient to the residual, chooses entries, and removes them. With plain error feedback, the chosen
entries plus the new residual equal the old residual plus the gradient, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from testbed.codec.errors import NonFiniteNumbers
from testbed.codec.selectors import on_device
from testbed.codec.selectors.chance import Drawing, RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sources import Feedback, Floats, Indices, Momentum, NonFinite, ValueSource
from testbed.state import PartsByKey, Remembering, Stateful

Select = Callable[[ValueSource, int], Indices]


class ResidualMemory(Stateful, Protocol):
    """The residual of one key."""

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Add the gradient. Return, and remove, at most k entries: their indices (ascending) and their values.

        Both are new tensors on the gradient's device.
        """


class HostMemory(Remembering):
    """The residual in main memory. Plain error feedback: unsent ← unsent + gradient.

    ``momentum``: momentum correction with factor masking, which clears the sent entries in the velocity, too.
    """

    remembers = ("_unsent", "_velocity")

    def __init__(self, size: int, select: Select, momentum: float | None = None) -> None:
        self._unsent = torch.from_numpy(np.zeros(size, np.float32))
        self._select = select
        self._momentum = momentum
        self._velocity = None if momentum is None else torch.from_numpy(np.zeros(size, np.float32))

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        unsent = self._unsent.numpy()
        velocity = None if self._velocity is None else self._velocity.numpy()
        source: ValueSource = Feedback(unsent, numbers_of(gradient))
        if self._momentum is not None and velocity is not None:
            source = Momentum(velocity, unsent, numbers_of(gradient), self._momentum)
        # some published selectors may return more than k; the message has room for k, the others stay unsent
        chosen = self._select(source, k)[:k]
        values = unsent[chosen]
        unsent[chosen] = 0
        if velocity is not None:
            velocity[chosen] = 0
        return torch.from_numpy(chosen), torch.from_numpy(values)


class Memories(Remembering):
    """Makes the residual memory of each key, on the device of its gradients.

    ``momentum``: factor of the momentum correction; ``None``: plain error feedback.
    """

    remembers = ("_drawing",)

    def __init__(self, select: Select, momentum: float | None = None) -> None:
        self._select = select
        self._momentum = momentum
        self._drawing: PartsByKey[int, Drawing] = PartsByKey(select.of_key if isinstance(select, Drawing) else None)

    def __call__(self, size: int, device: torch.device, key: int = 0) -> ResidualMemory:
        """Return an empty memory."""
        select = self._drawing[key] if isinstance(self._select, Drawing) else self._select
        if device.type == "cpu":
            return HostMemory(size, select, self._momentum)
        return on_device.DeviceMemory(size, device, self._momentum, _adding(select, size, device))


def _adding(select: Select, size: int, device: torch.device) -> on_device.Add:
    if isinstance(select, RandomK):
        return on_device.random_positions(select)
    if isinstance(select, PublishedMsTopk):
        return on_device.published_mstopk(select)
    return on_device.TritonSweep(size, device) if device.type == "cuda" else on_device.exact


def take_finite(memory: ResidualMemory, key: int, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return ``memory.take``. Raise ``NonFiniteNumbers`` if the gradient, or its sum with the residual, is not finite.

    The residual contains the bad elements from then on, so every later call raises, too. Checking the gradient before
    adding it would need a second sweep over the memory, which takes half as long as the addition.
    """
    try:
        with np.errstate(over="ignore"):  # an overflow is found, and counted, by the selector
            return memory.take(gradient, k)
    except NonFinite as error:
        raise NonFiniteNumbers(key, error.count, gradient.numel(), "accumulated gradient") from error


def numbers_of(tensor: Tensor) -> Floats:
    """Return a flat float32 tensor as a NumPy array, which shares its memory if the tensor is on the CPU."""
    numbers: Floats = tensor.detach().cpu().contiguous().numpy()
    return numbers
