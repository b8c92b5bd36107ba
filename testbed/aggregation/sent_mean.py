"""The mean over those who have sent an element.

As SparseLoCo's peers take each other's contributions (``batch_decompress`` in tplr-ai/templar, whose means leave out
the zeros of those who did not send): Σ w_i V_i / Σ w_i over the i with V_i ≠ 0, for each element, with V_i the
contributions and w_i their weights. The paper has the plain mean, in which what is sent by one of n counts for 1/n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.base import AggregationRule

if TYPE_CHECKING:
    from torch import Tensor


class SentMean(AggregationRule):
    """Of each element, the mean of the contributions in which it is not 0. Made for codecs that send few elements."""

    from_zero: ClassVar[bool] = True
    sum_times: ClassVar[float] = 3.0

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        shares = weights @ (values != 0).to(values.dtype)
        shares[shares == 0] = 1.0
        mean: Tensor = (weights @ values) / shares
        return mean
