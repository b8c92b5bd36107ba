"""The coordinate-wise median.

Yin, Chen, Ramchandran and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML
2018 (arXiv 1803.01498), definition 1: the k-th coordinate of the median is the one-dimensional median of the k-th
coordinates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.base import AggregationRule

if TYPE_CHECKING:
    from torch import Tensor


class Median(AggregationRule):
    """The median of each element (Yin et al., 2018); for an even number of members, the mean of the two in the middle.

    All members have the same weight.
    """

    by_element: ClassVar[bool] = True

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        members = len(values)
        ordered = values.sort(dim=0).values
        return (ordered[(members - 1) // 2] + ordered[members // 2]) / 2
