"""Norm clipping to the median norm.

V_i ← V_i · min(1, c · median_j ‖V_j‖ / ‖V_i‖), then the mean. SparseLoCo's peers do so with each other's contributions
(``clip_norm`` in tplr-ai/templar, the code of Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo",
arXiv 2508.15706). Sun et al., "Can You Really Backdoor Federated Learning?", 2019 (arXiv 1911.07963), use it against
attackers, with a constant in place of the median.

Norms are those of whole contributions, over all keys that a server has; templar's are those of each tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.aggregation.base import AggregationRule
from testbed.axes import option

if TYPE_CHECKING:
    from torch import Tensor


class NormClip(AggregationRule):
    """The mean of contributions after long ones have been shortened to c times the median length.

    c is the option ``limit``. This bounds the length of an attacker's contribution, but does not change its direction.
    """

    whole: ClassVar[bool] = True
    from_zero: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """The largest length of a contribution."""

        limit: float = option(1.0, "longest contribution, in lengths of the median one", above=0, max=1000)

    def measure(self, values: Tensor) -> Tensor:
        """Return the squared norms, float64 [members]."""
        squares: Tensor = values.double().norm(dim=1).square()
        return squares

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        assert measured is not None
        norms = measured.sqrt()
        longest = self.options.limit * norms.quantile(0.5)
        factors = (longest / norms).nan_to_num(1.0).clamp(max=1.0)  # a contribution of zeros stays as it is
        mean: Tensor = (weights * factors).to(values.dtype) @ values
        return mean
