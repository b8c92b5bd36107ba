"""One by one: wait for every data centre, then make a step for each. The algorithm of the notebook own_algorithm."""

from __future__ import annotations

from typing import ClassVar

from testbed.policy.events import Aggregate, Effect, Reply
from testbed.policy.sync.fsa import Fsa


class OneByOne(Fsa):
    """More steps than FSA for the same traffic: one along each data centre's gradient, in rank order."""

    tiers: ClassVar = (2,)
    partner: ClassVar = "fsa"  # on tier 1, where the scenario names only this

    def _complete(self, key: int, round_: int, members: tuple[str, ...], by: str) -> list[Effect]:
        there = self._rounds.present(members)  # all, unless faults have taken some
        steps: list[Effect] = [Aggregate(key, round_, (member,)) for member in members]
        return [*steps, Reply(key, (round_,) * len(there), there, by=by)]
