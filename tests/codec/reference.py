"""Selectors to compare with: a full sort, which defines what is right, and ``torch.topk``."""

from __future__ import annotations

import numpy as np
import torch

from testbed.codec.selectors.sources import (
    SMALLEST_BITS,
    Floats,
    Indices,
    ValueSource,
    check_finite,
    check_k,
    magnitude_bits,
)


class FullSort:
    """Exact by construction: sort by magnitude, equal ones by position, and take the first k that are not zero."""

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        bits = magnitude_bits(source.update(slice(0, source.size)))
        check_finite(bits)
        first = np.lexsort((np.arange(bits.size), -bits.astype(np.int64)))[:k]
        return np.sort(first[bits[first] >= SMALLEST_BITS])


class TorchTopk:
    """``torch.topk`` of |x|. Exact in magnitudes; which of equal ones it takes is torch's choice."""

    def __call__(self, source: ValueSource, k: int) -> Indices:
        check_k(k, source.size)
        numbers = source.update(slice(0, source.size))
        check_finite(magnitude_bits(numbers))
        magnitudes, positions = torch.topk(torch.from_numpy(numbers).abs(), k, sorted=False)
        chosen: Indices = positions[magnitudes > 0].numpy()
        chosen.sort()
        return chosen


class Numbers:
    """Numbers that do not change."""

    def __init__(self, numbers: Floats) -> None:
        self._numbers, self.size = numbers, numbers.size

    def peek(self, at: Indices) -> Floats:
        return self._numbers[at]

    def update(self, part: slice) -> Floats:
        return self._numbers[part]

    def read(self, at: slice | Indices) -> Floats:
        return self._numbers[at]
