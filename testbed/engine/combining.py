"""Combines a round's contributions at a server by an aggregation rule that compares all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from testbed.aggregation.base import AggregationRule
from testbed.policy.events import Aggregate
from testbed.world import Future, Work, World

Whose = tuple[int, tuple[str, ...]]  # a round, and the members that contribute to it


class Combining:
    """Applies one rule at one server. The scenario's rules ensure that all members wait for each other.

    The rule receives each member's contribution divided by the member's weight, and returns a tensor that replaces
    their mean. The server passes on that tensor times the sum of the weights, in place of a sum of contributions.

    weights  by member: its weight, as in ``ServerMembers``
    """

    def __init__(self, world: World, rule: AggregationRule, weights: Mapping[str, float]) -> None:
        self._world = world
        self._rule = rule
        self._weights = weights
        self._measures: dict[Whose, dict[int, Tensor]] = {}  # by key
        self._complete: dict[Whose, Future[Tensor]] = {}

    async def total(self, effect: Aggregate, tensors: Sequence[Tensor], size_bytes: int, keys: int) -> Tensor:
        """Return the tensor that replaces the sum of ``tensors``, the contributions of the effect's members in order.

        size_bytes  the number of bytes that a sum would read
        keys        the number of keys of this server
        """
        if tensors[0].is_meta:
            work = Work("sum", effect.round, size_bytes=int(self._rule.sum_times * size_bytes))
            return await self._world.compute(work, lambda: tensors[0])
        counts = [self._weights[member] for member in effect.members]
        whole = math.fsum(counts)
        weights = torch.tensor(counts, device=tensors[0].device) / whole

        def stacked() -> Tensor:
            return torch.stack(
                [each if count == 1 else each / count for each, count in zip(tensors, counts, strict=True)]
            )

        values = await self._world.compute(Work("copy", effect.round, size_bytes=size_bytes), stacked)
        measured = await self._measured(effect, values, size_bytes, keys)

        def combined() -> Tensor:
            mean = self._rule.combine(values, weights, measured)
            return mean if whole == 1 else mean * whole

        times = 1.0 if self._rule.whole else self._rule.sum_times  # measuring is most of the work
        return await self._world.compute(Work("sum", effect.round, size_bytes=int(times * size_bytes)), combined)

    async def _measured(self, effect: Aggregate, values: Tensor, size_bytes: int, keys: int) -> Tensor | None:
        """Return the rule's measure of this round, summed over all keys; ``None`` if the rule measures nothing.

        This waits until all keys of the round are measured. The sum is made in the order of the keys, so it has the
        same bits in whatever order the keys arrive.
        """
        if not self._rule.whole:
            return None
        whose = (effect.round, effect.members)
        measures = self._measures.setdefault(whose, {})
        complete = self._complete.setdefault(whose, self._world.future())
        work = Work("sum", effect.round, size_bytes=int(self._rule.sum_times * size_bytes))
        measures[effect.key] = await self._world.compute(work, lambda: self._rule.measure(values))
        if len(measures) == keys:
            del self._measures[whose], self._complete[whose]
            complete.set_result(torch.stack([measures[key] for key in sorted(measures)]).sum(dim=0))
        return await self._world.wait(complete, f"the other keys of round {effect.round}, which are measured together")
