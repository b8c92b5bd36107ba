"""FSA, fully synchronous aggregation: a round of a key is complete when every member has pushed it.

GeoMX's default, on both tiers (HiPS); with one tier it is bulk-synchronous parallel (Valiant, CACM 1990). Sums are
taken in rank order, so the result does not depend on the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier


@dataclass(slots=True)
class _OpenRound:
    """A round of a key: its members, and those of them that have not pushed yet."""

    members: tuple[str, ...]
    missing: set[str]


class Fsa(SyncPolicy):
    """Wait for all members, aggregate, reply to all."""

    supports_failover: ClassVar[bool] = True

    def __init__(self, tier: Tier, options: Any) -> None:
        self._members = tier.names
        self._gone: set[str] = set()
        self._since: dict[str, int] = {}  # first rounds of those that have joined again
        self._begun: dict[tuple[int, int], _OpenRound] = {}  # by key and round, those that are not complete
        self._reached = -1  # the latest round that has begun of any key

    def begin_at(self, round_: int) -> None:
        self._reached = round_ - 1

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        begun = self._begun.get((key, round_))
        return tuple(member for member in self._members if begun and member in begun.missing)

    def on_push(self, push: Push) -> list[Effect]:
        where = (push.key, push.round)
        begun = self._begun.get(where)
        if begun is None:
            members = self._expected(push.round)
            begun = self._begun[where] = _OpenRound(members, set(members))
            self._reached = max(self._reached, push.round)
        assert push.member in begun.missing, f"{push.member} pushed key {push.key} of round {push.round} twice"
        begun.missing.remove(push.member)
        if begun.missing:
            return []
        del self._begun[where]
        return self._complete(*where, begun.members, push.member)

    def on_member_lost(self, member: str) -> list[Effect]:
        self._gone.add(member)
        return self._without(member, math.inf)

    def on_member_began(self, member: str, round_: int) -> list[Effect]:
        self._since[member] = round_
        return self._without(member, round_)

    def on_member_joined(self, member: str) -> int:
        self.resume_member(member, self._reached + 1)
        return self._since[member]

    def resume_member(self, member: str, since: int) -> None:
        self._gone.discard(member)
        self._since[member] = since

    def _expected(self, round_: int) -> tuple[str, ...]:
        if not self._gone and not self._since:
            return self._members
        return tuple(m for m in self._members if m not in self._gone and self._since.get(m, 0) <= round_)

    def _without(self, member: str, before: float) -> list[Effect]:
        """Wait no more for what ``member`` has not pushed, in rounds before ``before``. Return what to do now."""
        complete = []
        for (key, round_), begun in sorted(self._begun.items()):
            if member in begun.missing and round_ < before:
                begun.missing.remove(member)
                begun.members = tuple(each for each in begun.members if each != member)
                if not begun.missing:
                    del self._begun[key, round_]
                    complete.append((key, round_, begun.members))
        return [effect for each in complete for effect in self._complete(*each, member)]

    def _complete(self, key: int, round_: int, members: tuple[str, ...], by: str) -> list[Effect]:
        there = self._present(members)
        return [self._combine(key, round_, members), Reply(key, (round_,) * len(there), there, self._steps(), by=by)]

    def _present(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of ``members`` that are not lost."""
        return tuple(member for member in members if member not in self._gone) if self._gone else members

    def _combine(self, key: int, round_: int, members: tuple[str, ...]) -> Aggregate:
        return Aggregate(key, round_, members)

    def _steps(self) -> Mapping[str, int]:
        """Return the local steps of the next round by worker, for algorithms that assign any."""
        return {}


class Bsp(Fsa):
    """Bulk-synchronous parallel: FSA's name where there is one tier."""
