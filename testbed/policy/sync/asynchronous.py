"""Nobody waits: every push is applied and answered as it comes.

MixedSync (GeoMX): the WAN tier works so, while inside a data centre workers stay synchronous. TAP, totally
asynchronous parallel: every tier does (asynchronous SGD; Recht et al., Hogwild, NIPS 2011; Dean et al., NIPS 2012).
Staleness is not bounded; in steady state it is the number of other members on the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.events import Aggregate, Contribution, Effect, Push, Reply


class Tap:
    """Totally asynchronous."""

    contribution: ClassVar = Contribution.GRADIENT
    waits: ClassVar[bool] = False
    tiers: ClassVar[tuple[int, ...]] = (1, 2)

    @dataclass(frozen=True, slots=True)
    class Options:
        """TAP has no options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._pushes_per_round = dict.fromkeys(members, 1)
        self._next_round = 0

    def count_pushes(self, per_round: Mapping[str, int]) -> None:
        """How many pushes of each member make a round of its."""
        self._pushes_per_round = dict(per_round)

    def begin_at(self, round_: int) -> None:
        """All members have finished the rounds before ``round_``."""
        self._next_round = round_

    def on_push(self, push: Push) -> list[Effect]:
        self._next_round = max(self._next_round, push.round // self._pushes_per_round[push.member] + 1)
        return [Aggregate(push.key, push.round, (push.member,)), Reply(push.key, (push.round,), (push.member,))]

    def on_member_lost(self, member: str) -> list[Effect]:
        """Nobody waited for it."""
        return []

    def on_member_joined(self, member: str) -> int:
        """It goes on where the foremost is, so that it does not hold up the end of the run."""
        return self._next_round * self._pushes_per_round[member]

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return ()


class MixedSync(Tap):
    """Asynchronous between data centres; inside them FSA."""

    tiers: ClassVar[tuple[int, ...]] = (2,)
    partner: ClassVar = "fsa"  # what ``sync: mixedsync`` puts on tier 1
