"""The residual of one key at its sender: everything that it has not sent yet.

``take`` adds a gradient to the memory, chooses entries, and removes them from it. What is chosen plus what stays is
what was there plus what came, element by element and bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from testbed.codec.errors import NonFiniteNumbers
from testbed.codec.selectors import on_device
from testbed.codec.selectors.chance import Drawing, RandomK
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sources import Feedback, Floats, Indices, Momentum, NonFinite, ValueSource
from testbed.state import Stateful, by_key, joined

Select = Callable[[ValueSource, int], Indices]


class ResidualMemory(Stateful, Protocol):
    """Of one key."""

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """At most k indices (ascending) and their values, where the gradient is; both new."""


class HostMemory:
    """Error feedback: unsent ← unsent + gradient; or momentum correction with factor masking (``momentum``): what is
    sent is cleared in the velocity too.
    """

    def __init__(self, size: int, select: Select, momentum: float | None = None) -> None:
        self._unsent = np.zeros(size, np.float32)
        self._select = select
        self._momentum = momentum
        self._velocity = np.zeros(0 if momentum is None else size, np.float32)

    def take(self, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
        source: ValueSource = Feedback(self._unsent, numbers_of(gradient))
        if self._momentum is not None:
            source = Momentum(self._velocity, self._unsent, numbers_of(gradient), self._momentum)
        # some published selectors may give more than k; the message has room for k, the rest stays here
        chosen = self._select(source, k)[:k]
        values = self._unsent[chosen]
        self._unsent[chosen] = 0
        if self._momentum is not None:
            self._velocity[chosen] = 0
        return torch.from_numpy(chosen), torch.from_numpy(values)

    def state(self) -> dict[str, Tensor]:
        kept = {"unsent": self._unsent} | ({} if self._momentum is None else {"velocity": self._velocity})
        return {name: torch.from_numpy(numbers.copy()) for name, numbers in kept.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._unsent[:] = state["unsent"].numpy()
        if self._momentum is not None:
            self._velocity[:] = state["velocity"].numpy()


class Memories:
    """Makes the memory of each key, where its gradients are.

    ``momentum``: of the momentum correction; ``None``: plain error feedback.
    """

    def __init__(self, select: Select, momentum: float | None = None) -> None:
        self._select = select
        self._momentum = momentum
        self._drawing: dict[int, Drawing] = {}  # by key, if the selection draws by chance

    def __call__(self, size: int, device: torch.device, key: int = 0) -> ResidualMemory:
        """Return an empty memory."""
        select = self._drawing_of(self._select, key) if isinstance(self._select, Drawing) else self._select
        if device.type == "cpu":
            return HostMemory(size, select, self._momentum)
        return on_device.DeviceMemory(size, device, self._momentum, _adding(select, size, device))

    def _drawing_of(self, select: Drawing, key: int) -> Drawing:
        if key not in self._drawing:
            self._drawing[key] = select.of_key(key)
        return self._drawing[key]

    def state(self) -> dict[str, Any]:
        """Return where the streams of random numbers are, if the selection draws any."""
        return joined({str(key): drawing for key, drawing in self._drawing.items()})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``. Of the one stream of all keys that earlier releases kept, no key goes on."""
        if isinstance(self._select, Drawing):
            streams = by_key({name: content for name, content in state.items() if name != "stream"})
            for key, stream in streams.items():
                self._drawing_of(self._select, key).load_state(stream)


def _adding(select: Select, size: int, device: torch.device) -> on_device.Add:
    if isinstance(select, RandomK):
        return on_device.random_positions(select)
    if isinstance(select, PublishedMsTopk):
        return on_device.published_mstopk(select)
    return on_device.TritonSweep(size, device) if device.type == "cuda" else on_device.exact


def take_finite(memory: ResidualMemory, key: int, gradient: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return what ``take`` does. Raise ``NonFiniteNumbers`` if the gradient, or its sum with the unsent, is not finite.

    The memory has the bad elements then, so every later call raises, too: to look at the gradient before it is added
    would be a second sweep, half as long as the sum.
    """
    try:
        with np.errstate(over="ignore"):  # an overflow is found, and counted, by the selector
            return memory.take(gradient, k)
    except NonFinite as error:
        raise NonFiniteNumbers(key, error.count, gradient.numel(), "accumulated gradient") from error


def numbers_of(tensor: Tensor) -> Floats:
    """A flat float32 tensor as an array; the same memory if it lies on the CPU."""
    numbers: Floats = tensor.detach().cpu().contiguous().numpy()
    return numbers
