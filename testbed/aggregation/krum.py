"""Krum and Multi-Krum.

Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017 (arXiv 1703.02757), section 4: the score of contribution i is s(i) = Σ ‖V_i − V_j‖² over the n − f − 2
contributions j nearest to it. Krum takes the contribution with the lowest score; Multi-Krum averages the m
contributions with the lowest scores. The guarantee holds for 2f + 2 < n. Here f is the share ``share`` of n, and
m = n − f − 2.

Distances are those of whole contributions: squares are added over all keys that a server has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.attackers import SHARE, attackers
from testbed.aggregation.base import AggregationRule
from testbed.axes import option

if TYPE_CHECKING:
    from torch import Tensor


class Krum(AggregationRule):
    """The contribution that is nearest to most others (Blanchard et al., 2017); of equal ones, the first by rank."""

    whole: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """The expected number of attackers."""

        share: float = option(0.2, "share of the members that may be attackers, rounded down", **SHARE)

    def measure(self, values: Tensor) -> Tensor:
        """Return the squared distances between contributions, float64 [members, members]."""
        squares = values.new_zeros(len(values), len(values)).double()
        for first in range(len(values)):
            for second in range(first):
                distance = (values[first] - values[second]).double().norm()
                squares[first, second] = distance.square()
                squares[second, first] = distance.square()
        return squares

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        assert measured is not None
        return values[self._best(measured)[0]].clone()

    def _best(self, squares: Tensor) -> list[int]:
        """Return the members in the order of their scores, the lowest first."""
        near = self._trusted(len(squares))
        # the first of the sorted distances is 0, from a contribution to itself
        scores = squares.sort(dim=1).values[:, 1 : 1 + near].sum(dim=1)
        best: list[int] = scores.argsort(stable=True).tolist()
        return best

    def _trusted(self, members: int) -> int:
        """Return n − f − 2, but at least 1."""
        return max(1, members - attackers(self.options.share, members) - 2)


class MultiKrum(Krum):
    """The mean of the n − f − 2 contributions that are nearest to most others (Blanchard et al., 2017)."""

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        assert measured is not None
        chosen = sorted(self._best(measured)[: self._trusted(len(values))])
        return values[chosen].mean(dim=0)
