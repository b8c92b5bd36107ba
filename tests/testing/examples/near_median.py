"""Mean around the median (Xie et al., 2018): of each element, the mean of the values nearest to its median."""

from dataclasses import dataclass, field

from torch import Tensor

from testbed.aggregation.base import AggregationRule


class NearMedian(AggregationRule):
    """``share`` of the members is left out: those that are farthest from the median."""

    by_element = True
    sum_times = 12.0

    @dataclass(frozen=True, slots=True)
    class Options:
        """See the module's docstring."""

        share: float = field(default=0.4, metadata={"help": "share of the members that is left out", "max": 0.5})

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        kept = len(values) - int(self.options.share * len(values))
        distances = (values - values.median(dim=0).values).abs()
        nearest = distances.sort(dim=0, stable=True).indices[:kept]
        return values.gather(0, nearest).mean(dim=0)
