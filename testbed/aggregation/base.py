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
    """Made as ``cls(cls.Options(...))``, once for each server. A rule keeps nothing from round to round.

    A member's contribution is float32 [elements] of one key: the gradient, model or change of the member itself, or the
    mean over the workers below it. So members with more workers do not have longer contributions.

    sums        whether the rule is the weighted sum, so that nodes on the way may sum contributions; any other rule
                needs every member's contribution by itself
    whole       whether the rule measures the contributions over all keys of the round before it combines any key
    by_element  whether the rule treats each element by itself, so that an element that a codec did not send counts as 0
    from_zero   whether the rule measures lengths from 0, or takes 0 as not sent; contributions must then be gradients
                or changes, not models
    sum_times   duration of the rule's work in virtual time, in durations of a sum
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
        """Return a measure of the contributions ``values`` [members, elements] to one key; it is summed over all keys.

        Called only if the rule declares ``whole``. The result is float64, with the same shape for all keys.
        """
        raise NotImplementedError(f"{type(self).__name__} declares 'whole' and defines no 'measure'")

    @abstractmethod
    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        """Return the result that takes the place of the mean of ``values`` [members, elements]: float32 [elements].

        weights   the weight of each member in a mean, float32 [members], with sum 1
        measured  the sum of the results of ``measure`` over all keys if the rule declares ``whole``; else ``None``
        """
