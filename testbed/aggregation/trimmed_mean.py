"""The coordinate-wise trimmed mean.

Yin, Chen, Ramchandran and Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML
2018 (arXiv 1803.01498), definition 2: the largest and the smallest β fraction of the k-th coordinates are removed, and
the others are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.attackers import SHARE, attackers
from testbed.aggregation.base import AggregationRule
from testbed.axes import option

if TYPE_CHECKING:
    from torch import Tensor


class TrimmedMean(AggregationRule):
    """The mean of each element without its smallest and largest values (Yin et al., 2018), with equal weights.

    β is the option ``share``.
    """

    by_element: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """The number of values that are left out."""

        share: float = option(0.2, "share of the members that is left out at each end, rounded down", **SHARE)

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        members = len(values)
        left_out = attackers(self.options.share, members)
        return values.sort(dim=0).values[left_out : members - left_out].mean(dim=0)
