"""The weighted mean: no defence."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.base import AggregationRule

if TYPE_CHECKING:
    from torch import Tensor


class Mean(AggregationRule):
    """The weighted sum of gradients, or mean of models or changes.

    Servers add in place and do not call this class.
    """

    sums: ClassVar[bool] = True
    sum_times: ClassVar[float] = 1.0

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        return weights @ values
