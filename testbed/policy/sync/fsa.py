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


@dataclass(slots=True)
class _OpenRound:
    """A round of a key: its members, and those of them that have not pushed yet."""

    members: tuple[str, ...]
    missing: set[str]


class Rounds:
    """Rounds of keys that have begun and are not yet complete. Members may be lost, and join again."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._gone: set[str] = set()
        self._since: dict[str, int] = {}  # first rounds of those that have joined again
        self._begun: dict[tuple[int, int], _OpenRound] = {}
        self._reached = -1  # the latest round that has begun of any key

    def complete(self, push: Push) -> tuple[str, ...]:
        """Note a push. Return the members in rank order if it completes its (key, round), else an empty tuple."""
        where = (push.key, push.round)
        begun = self._begun.get(where)
        if begun is None:
            members = self._expected(push.round)
            begun = self._begun[where] = _OpenRound(members, set(members))
            self._reached = max(self._reached, push.round)
        assert push.member in begun.missing, f"{push.member} pushed key {push.key} of round {push.round} twice"
        begun.missing.remove(push.member)
        if begun.missing:
            return ()
        del self._begun[where]
        return begun.members

    def missing(self, key: int, round_: int) -> tuple[str, ...]:
        """Return the members, in rank order, whose push of a begun round is missing."""
        begun = self._begun.get((key, round_))
        return tuple(member for member in self._members if begun and member in begun.missing)

    def on_member_lost(self, member: str) -> list[tuple[int, int, tuple[str, ...]]]:
        """``member`` is lost; its pushes so far count. Return (key, round, members) of rounds now complete."""
        self._gone.add(member)
        return self._without(member, None)

    def on_member_began(self, member: str, since: int) -> list[tuple[int, int, tuple[str, ...]]]:
        """``member``, which has joined, is part of no round before ``since``. Return likewise."""
        self._since[member] = since
        return self._without(member, since)

    def _without(self, member: str, before: int | None) -> list[tuple[int, int, tuple[str, ...]]]:
        """Wait no more for what ``member`` has not pushed, in rounds before ``before`` only, if given."""
        complete = []
        for (key, round_), begun in sorted(self._begun.items()):
            if member in begun.missing and (before is None or round_ < before):
                begun.missing.remove(member)
                begun.members = tuple(each for each in begun.members if each != member)
                if not begun.missing:
                    complete.append((key, round_, begun.members))
        for key, round_, _ in complete:
            del self._begun[key, round_]
        return complete

    def begin_at(self, round_: int) -> None:
        """All rounds before ``round_`` are over: the run is resumed, or this server has joined it."""
        self._reached = round_ - 1

    def on_member_joined(self, member: str, since: int | None = None) -> int:
        """``member`` is back. Return the first round that it is part of.

        ``since``: that round, if another server has agreed on it; by default the first that no key has begun.
        """
        self._gone.discard(member)
        self._since[member] = self._reached + 1 if since is None else since
        return self._since[member]

    def present(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of ``members`` that are not lost."""
        return tuple(member for member in members if member not in self._gone) if self._gone else members

    def _expected(self, round_: int) -> tuple[str, ...]:
        if not self._gone and not self._since:
            return self._members
        return tuple(m for m in self._members if m not in self._gone and self._since.get(m, 0) <= round_)


class Fsa(SyncPolicy):
    """Wait for all members, aggregate, reply to all."""

    supports_failover: ClassVar[bool] = True

    def __init__(self, tier: Tier, options: Any) -> None:
        self._rounds = Rounds(tier.names)

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return self._rounds.missing(key, round_)

    def on_push(self, push: Push) -> list[Effect]:
        members = self._rounds.complete(push)
        return self._complete(push.key, push.round, members, push.member) if members else []

    def on_member_lost(self, member: str) -> list[Effect]:
        return self._all_complete(self._rounds.on_member_lost(member), member)

    def on_member_began(self, member: str, round_: int) -> list[Effect]:
        return self._all_complete(self._rounds.on_member_began(member, round_), member)

    def begin_at(self, round_: int) -> None:
        self._rounds.begin_at(round_)

    def on_member_joined(self, member: str) -> int:
        return self._rounds.on_member_joined(member)

    def resume_member(self, member: str, since: int) -> None:
        self._rounds.on_member_joined(member, since)

    def _all_complete(self, found: list[tuple[int, int, tuple[str, ...]]], by: str) -> list[Effect]:
        return [effect for complete in found for effect in self._complete(*complete, by)]

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
