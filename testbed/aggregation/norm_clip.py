"""Norm clipping to the median norm.

As SparseLoCo's peers do with each other's contributions (``clip_norm`` in tplr-ai/templar, the code of Sarfi et al.,
"Communication Efficient LLM Pre-training with SparseLoCo", arXiv 2508.15706); against attackers Sun et al., "Can You
Really Backdoor Federated Learning?", 2019 (arXiv 1911.07963), with a constant in place of the median:
V_i ← V_i · min(1, c · median_j ‖V_j‖ / ‖V_i‖), then the mean.

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
    """The mean of contributions, of which those longer than the median one are shortened to its length.

    c is the option ``limit``. It bounds what an attacker adds, and leaves its direction as it is.
    """

    whole: ClassVar[bool] = True
    from_zero: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """How long a contribution may be."""

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
