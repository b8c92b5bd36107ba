"""Asynchronous algorithms: every push is applied and answered on arrival.

MixedSync (GeoMX): the WAN tier works so, while inside a data centre workers stay synchronous. TAP, totally
asynchronous parallel: every tier does (asynchronous SGD; Recht et al., Hogwild, NIPS 2011; Dean et al., NIPS 2012).
Staleness is not bounded; in steady state it is the number of other members on the mean.
"""

from __future__ import annotations

from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier


class Tap(SyncPolicy):
    """Totally asynchronous."""

    waits: ClassVar[bool] = False

    def __init__(self, tier: Tier, options: Any) -> None:
        self._pushes_per_round = {member.name: member.pushes_per_round for member in tier.members}
        self._next_round = 0

    def begin_at(self, round_: int) -> None:
        self._next_round = round_

    def on_push(self, push: Push) -> list[Effect]:
        self._next_round = max(self._next_round, push.round // self._pushes_per_round[push.member] + 1)
        return [Aggregate(push.key, push.round, (push.member,)), Reply(push.key, (push.round,), (push.member,))]

    def on_member_lost(self, member: str) -> list[Effect]:
        return []

    def on_member_joined(self, member: str) -> int:
        """Return the round of the foremost member, so that the joined one does not delay the end of the run."""
        return self._next_round * self._pushes_per_round[member]

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return ()


class MixedSync(Tap):
    """Asynchronous between data centres; inside them FSA."""

    tiers: ClassVar[tuple[int, ...]] = (2,)
    partner: ClassVar[str] = "fsa"
