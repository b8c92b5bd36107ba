"""FSA, fully synchronous aggregation: a round of a key is complete when every member has pushed it.

GeoMX's default, on both tiers (HiPS); with one tier it is bulk-synchronous parallel (Valiant, CACM 1990). Sums are
taken in rank order, so the result does not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.policy.sync.rounds import Rounds


class Fsa(SyncPolicy):
    """Wait for all members, aggregate, reply to all."""

    supports_failover: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """FSA has no options."""

    def __init__(self, tier: Tier, options: Any) -> None:
        self._rounds = Rounds(tier.names)

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return self._rounds.missing(key, round_)

    def on_push(self, push: Push) -> list[Effect]:
        members = self._rounds.complete(push)
        return self._complete(push.key, push.round, members, push.member) if members else []

    def on_member_lost(self, member: str) -> list[Effect]:
        found = [self._complete(*complete, member) for complete in self._rounds.on_member_lost(member)]
        return [effect for effects in found for effect in effects]

    def begin_at(self, round_: int) -> None:
        self._rounds.begin_at(round_)

    def on_member_joined(self, member: str) -> int:
        return self._rounds.on_member_joined(member)

    def resume_member(self, member: str, since: int) -> None:
        self._rounds.on_member_joined(member, since)

    def _complete(self, key: int, round_: int, members: tuple[str, ...], by: str) -> list[Effect]:
        there = self._rounds.present(members)
        return [self._combine(key, round_, members), Reply(key, (round_,) * len(there), there, self._steps(), by=by)]

    def _combine(self, key: int, round_: int, members: tuple[str, ...]) -> Aggregate:
        return Aggregate(key, round_, members)

    def _steps(self) -> Mapping[str, int]:
        """Return the local steps of the next round by worker, for algorithms that assign any."""
        return {}


class Bsp(Fsa):
    """Bulk-synchronous parallel: FSA's name where there is one tier."""
