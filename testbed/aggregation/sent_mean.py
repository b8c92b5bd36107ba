"""The mean of each element over the members that have sent it.

For each element: Σ w_i V_i / Σ w_i over all i with V_i ≠ 0, where V_i are the contributions and w_i their weights.
SparseLoCo's peers combine each other's contributions in this way (``batch_decompress`` in tplr-ai/templar, whose means
leave out zeros of peers that did not send). The paper has the plain mean, in which an element that one of n members
sends counts for 1/n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.base import AggregationRule

if TYPE_CHECKING:
    from torch import Tensor


class SentMean(AggregationRule):
    """The mean of each element over the contributions in which it is not 0. Made for codecs that send few elements."""

    from_zero: ClassVar[bool] = True
    sum_times: ClassVar[float] = 3.0

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        shares = weights @ (values != 0).to(values.dtype)
        shares[shares == 0] = 1.0
        mean: Tensor = (weights @ values) / shares
        return mean
