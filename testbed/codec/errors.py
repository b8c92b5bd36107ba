"""Errors for numbers that a codec refuses. A NaN or infinity would stay in a residual, and so in the model, forever."""

from __future__ import annotations

from torch import Tensor

from testbed.errors import Diverged
from testbed.finite import count_not_finite


class NonFiniteNumbers(Diverged):
    """``count`` of ``size`` elements of key ``key`` are NaN or infinite."""

    def __init__(self, key: int, count: int, size: int, what: str) -> None:
        self.key = key
        self.count = count
        self.size = size
        super().__init__(
            f"{count} of {size} elements of the {what} of key {key} are NaN or infinite; the training has diverged: "
            f"{self.cure} (nothing of it was sent)"
        )


class OutsideHalfPrecision(Diverged):
    """``count`` elements of key ``key`` are too large for float16."""

    def __init__(self, key: int, count: int, largest: float) -> None:
        self.key = key
        self.count = count
        self.largest = largest
        super().__init__(
            f"{count} elements of key {key} are outside the range of float16 (largest magnitude {largest:g}, "
            f"limit 65504); use the codec 'none' for this model, or lower the learning rate"
        )


def check_finite(key: int, tensor: Tensor, what: str = "gradient") -> None:
    """Raise ``NonFiniteNumbers`` if any element is NaN or infinite. Meta tensors pass."""
    if count := count_not_finite(tensor):
        raise NonFiniteNumbers(key, count, tensor.numel(), what)
