"""The push direction of every sparse codec: add the gradient to what is unsent, send the chosen entries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from torch import Tensor

from testbed.codec import pairs
from testbed.codec.errors import NonFiniteNumbers, check_finite
from testbed.codec.memory import MakeMemory, ResidualMemory
from testbed.codec.schedule import RatioSchedule, entries, words
from testbed.codec.selectors.sources import NonFinite


class SparsePush:
    """Entries of each key by ``schedule``, from memories that ``make_memory`` makes.

    ``max_norm``: gradients with a larger Euclidean norm are scaled down to it. ``padded``: GeoMX's fixed length.
    """

    def __init__(
        self, schedule: RatioSchedule, make_memory: MakeMemory, padded: bool = False, max_norm: float = math.inf
    ) -> None:
        self._schedule, self._make, self._padded, self._max_norm = schedule, make_memory, padded, max_norm
        self._memories: dict[int, ResidualMemory] = {}
        self._rounds: Counter[int] = Counter()

    def encode(self, wire_key: int, gradient: Tensor) -> tuple[Tensor, ...]:
        """Raises ``NonFiniteNumbers`` before anything of a bad gradient is remembered."""
        size = gradient.numel()
        count = entries(size, self._schedule.ratio(self._rounds[wire_key]))
        if gradient.is_meta:
            self._rounds[wire_key] += 1
            return pairs.shapes(count, self._words(size))
        check_finite(wire_key, gradient)
        memory = self._memories.get(wire_key)
        if memory is None:
            memory = self._memories[wire_key] = self._make(size, gradient.device)
        try:
            with np.errstate(over="ignore"):  # an overflow is found, and counted, by the selector
                indices, values = memory.take(_clipped(gradient, self._max_norm), count)
        except NonFinite as error:  # the gradient is finite, but what has gathered overflowed
            raise NonFiniteNumbers(wire_key, error.count, size, "accumulated gradient") from error
        self._rounds[wire_key] += 1
        return pairs.pack(indices, values, self._words(size))

    def decode(self, parts: tuple[Tensor, ...], size: int) -> Tensor:
        most = entries(size, self._schedule.highest)
        return pairs.scatter(*pairs.unpack(parts, size, most, self._words(size)), size)

    def bytes(self, size: int) -> int:
        """Reached unless fewer elements than that differ from zero, and after a warm-up."""
        return 4 * (self._words(size) or 2 * entries(size, self._schedule.highest))

    def unsent(self, wire_key: int) -> Tensor:
        """Return what has not been sent of a key yet."""
        return self._memories[wire_key].unsent()

    def _words(self, size: int) -> int | None:
        return words(size, self._schedule.highest) if self._padded else None


def _clipped(gradient: Tensor, max_norm: float) -> Tensor:
    if max_norm == math.inf:
        return gradient
    norm = float(gradient.double().norm())
    return gradient if norm <= max_norm else gradient * (max_norm / norm)
