"""FSA, fully synchronous aggregation: a round of a key is complete when every member has pushed it.

GeoMX's default, on both tiers (HiPS); with one tier it is bulk-synchronous parallel (Valiant, CACM 1990). Sums are
taken in rank order, so the result does not depend on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.events import Aggregate, Contribution, Effect, Push, Reply
from testbed.policy.sync.rounds import Rounds


class Fsa:
    """Wait for all, combine all, answer all."""

    contribution: ClassVar = Contribution.GRADIENT
    waits: ClassVar[bool] = True
    tiers: ClassVar[tuple[int, ...]] = (1, 2)

    @dataclass(frozen=True, slots=True)
    class Options:
        """FSA has no options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._rounds = Rounds(members)
        self.waiting_for = self._rounds.missing

    def on_push(self, push: Push) -> list[Effect]:
        members = self._rounds.complete(push)
        return self._complete(push.key, push.round, members, push.member) if members else []

    def on_member_lost(self, member: str) -> list[Effect]:
        """``member`` is gone: rounds that waited for nobody else are complete."""
        found = [self._complete(*complete, member) for complete in self._rounds.on_member_lost(member)]
        return [effect for effects in found for effect in effects]

    def begin_at(self, round_: int) -> None:
        """All rounds before ``round_`` are over."""
        self._rounds.begin_at(round_)

    def on_member_joined(self, member: str) -> int:
        """``member`` is back; returns the first round that it takes part in."""
        return self._rounds.on_member_joined(member)

    def resume_member(self, member: str, since: int) -> None:
        """``member`` takes part in rounds from ``since`` on, as it did with the server whose place this one takes."""
        self._rounds.on_member_joined(member, since)

    def _complete(self, key: int, round_: int, members: tuple[str, ...], by: str) -> list[Effect]:
        there = self._rounds.present(members)
        return [self._combine(key, round_, members), Reply(key, (round_,) * len(there), there, self._steps(), by)]

    def _combine(self, key: int, round_: int, members: tuple[str, ...]) -> Aggregate:
        return Aggregate(key, round_, members)

    def _steps(self) -> Mapping[str, int]:
        return {}


class Bsp(Fsa):
    """Bulk-synchronous parallel: FSA's name where there is one tier."""
