"""Selectors that draw random numbers: their common base class, and the uniformly random selector."""

from __future__ import annotations

import json
from copy import copy
from typing import Self

import numpy as np

from testbed.codec.blocks import blocks
from testbed.codec.selectors.sources import Indices, ValueSource, check_finite, check_k, magnitude_bits
from testbed.state import Remembering


class Drawing(Remembering):
    """A selector that draws random numbers. ``sender`` makes senders with equal seeds choose different positions."""

    remembers = ("stream",)

    def __init__(self, seed: int = 0, sender: str = "") -> None:
        self._seed = seed
        self._sender = sender
        self._random = np.random.default_rng(seed)

    def of_key(self, key: int) -> Self:
        """Return a selector for one key, whose stream of random numbers is independent of other keys."""
        one = copy(self)
        one._random = np.random.default_rng([self._seed, key, *self._sender.encode()])
        return one

    @property
    def stream(self) -> str:
        """The state of the random number generator, as JSON."""
        return json.dumps(self._random.bit_generator.state)

    @stream.setter
    def stream(self, place: str) -> None:
        self._random.bit_generator.state = json.loads(place)


class RandomK(Drawing):
    """Chooses k distinct positions uniformly at random, anew at every call; equal seeds give equal sequences."""

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        for part in blocks(source.size):
            check_finite(magnitude_bits(source.update(part)))
        return self.draw(source.size, k)

    def draw(self, size: int, k: int) -> Indices:
        """Return k distinct random positions out of ``size``, ascending."""
        return np.sort(self._random.choice(size, k, replace=False, shuffle=False))
