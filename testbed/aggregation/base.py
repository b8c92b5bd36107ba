"""The contract of an aggregation rule: one tensor from the contributions of all members to one round of a key.

``docs/axes/aggregation.md`` explains it with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor


class AggregationRule(ABC):
    """Made as ``cls(cls.Options(...))``, once for each server. It keeps nothing from round to round.

    A member's contribution is float32 [elements] of one key: the gradient, model or change of the member itself, or the
    mean over the workers below it, so that members with more workers are not longer.

    sums        it is the weighted sum, which may be made of sums on the way; all other rules need the contributions of
                all members to a round, each by itself
    whole       it measures the contributions over all keys of the round before it combines any of them
    by_element  it decides for each element by itself, so that an element that a codec does not send counts as 0
    from_zero   it takes lengths from 0, or 0 for what was not sent: contributions are gradients or changes, not models
    sum_times   how many times as long as a sum its work takes in virtual time
    """

    sums: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    by_element: ClassVar[bool] = False
    from_zero: ClassVar[bool] = False
    sum_times: ClassVar[float] = 4.0

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def measure(self, values: Tensor) -> Tensor:
        """Return, of the contributions ``values`` [members, elements] to one key, what is to be added over all keys.

        Only a rule that declares ``whole`` is asked. The result is float64, of one shape for all keys.
        """
        raise NotImplementedError(f"{type(self).__name__} declares 'whole' and defines no 'measure'")

    @abstractmethod
    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        """Return what stands for the mean of ``values`` [members, elements], float32 [elements].

        weights   what each member counts for in a mean, float32 [members], of sum 1
        measured  the sum over all keys of what ``measure`` returned, where the rule declares ``whole``; else ``None``
        """
