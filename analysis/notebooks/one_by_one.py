"""One by one: wait for every data centre, then make a step for each. The algorithm of the notebook own_algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.events import Answer, Combine, Contribution, Effect, Push
from testbed.policy.sync.rounds import Rounds


class OneByOne:
    """More steps than FSA for the same traffic: one along each data centre's gradient, in rank order."""

    contribution: ClassVar = Contribution.GRADIENT
    tiers: ClassVar = (2,)
    partner: ClassVar = "fsa"  # on tier 1, where the scenario names only this

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._members = members
        self._rounds = Rounds(members)
        self.waiting_for = self._rounds.missing

    def on_push(self, push: Push) -> list[Effect]:
        if not self._rounds.complete(push):
            return []
        steps: list[Effect] = [Combine(push.key, push.round, (member,)) for member in self._members]
        everyone = (push.round,) * len(self._members)
        return [*steps, Answer(push.key, everyone, self._members, by=push.member)]
