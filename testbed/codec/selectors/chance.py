"""Random-k: k positions drawn without regard to the values; the baseline for every selector."""

from __future__ import annotations

import numpy as np

from testbed.codec.selectors.bisection import blocks
from testbed.codec.selectors.bits import Indices, check_finite, check_k, magnitude_bits
from testbed.codec.selectors.sources import ValueSource


class RandomK:
    """k distinct positions, drawn evenly; a new draw at every call, the same for the same ``seed``."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        for part in blocks(source.size):
            check_finite(magnitude_bits(source.update(part)))
        return np.sort(self._random.choice(source.size, k, replace=False, shuffle=False))
