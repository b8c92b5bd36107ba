"""Selection by chance: what every selector that draws keeps for it, and positions drawn evenly."""

from __future__ import annotations

import json
from copy import copy
from typing import Self

import numpy as np

from testbed.codec.blocks import blocks
from testbed.codec.selectors.sources import Indices, ValueSource, check_finite, check_k, magnitude_bits
from testbed.state import Remembering


class Drawing(Remembering):
    """A selector that draws by chance. ``sender``: senders with equal seeds choose positions of their own."""

    remembers = ("stream",)

    def __init__(self, seed: int = 0, sender: str = "") -> None:
        self._seed = seed
        self._sender = sender
        self._random = np.random.default_rng(seed)

    def of_key(self, key: int) -> Self:
        """Return the selector of one key, with a stream of random numbers that depends on no other key."""
        one = copy(self)
        one._random = np.random.default_rng([self._seed, key, *self._sender.encode()])
        return one

    @property
    def stream(self) -> str:
        """Where its stream of random numbers is."""
        return json.dumps(self._random.bit_generator.state)

    @stream.setter
    def stream(self, place: str) -> None:
        self._random.bit_generator.state = json.loads(place)


class RandomK(Drawing):
    """k distinct positions, drawn evenly; a new draw at every call, the same for the same ``seed``."""

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        for part in blocks(source.size):
            check_finite(magnitude_bits(source.update(part)))
        return self.draw(source.size, k)

    def draw(self, size: int, k: int) -> Indices:
        """Draw k of ``size`` positions; ascending."""
        return np.sort(self._random.choice(size, k, replace=False, shuffle=False))
