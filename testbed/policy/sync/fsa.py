"""FSA, fully synchronous aggregation: a round of a key is complete when every member has pushed it.

GeoMX's default, on both tiers (HiPS); with one tier it is bulk-synchronous parallel (Valiant, CACM 1990). Sums are
taken in rank order, so the result does not depend on the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Pace, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.preset import Preset


@dataclass(slots=True)
class _OpenRound:
    """A round of a key: its members, and those of them that have not pushed yet."""

    members: tuple[str, ...]
    missing: set[str]


class Fsa(SyncPolicy):
    """Wait for all members, aggregate, reply to all."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="fsa",
            summary="every step, all workers and all data centres wait for each other; the baseline",
            source="GeoMX; Valiant, CACM 1990",
            settings={"sync": {}},
        ),
    )

    supports_failover: ClassVar[bool] = True

    def __init__(self, tier: Tier, options: Any) -> None:
        self._first = dict.fromkeys(tier.names, 0)  # by present member: its first round
        self._members = tier.names
        self._begun: dict[tuple[int, int], _OpenRound] = {}  # incomplete rounds, by key and round

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        self._first = dict(first)
        self._begun.clear()
        return []

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        begun = self._begun.get((key, round_))
        return tuple(member for member in self._members if begun and member in begun.missing)

    def on_push(self, push: Push) -> list[Effect]:
        where = (push.key, push.round)
        begun = self._begun.get(where)
        if begun is None:
            members = tuple(each for each in self._members if self._first.get(each, math.inf) <= push.round)
            begun = self._begun[where] = _OpenRound(members, set(members))
        assert push.member in begun.missing, f"{push.member} pushed key {push.key} of round {push.round} twice"
        begun.missing.remove(push.member)
        if begun.missing:
            return []
        del self._begun[where]
        rounds = (push.round,) * len(begun.members)
        answer = Reply(push.key, rounds, begun.members, self.steps(), pace=self.pace(push.round), by=push.member)
        return [*self.combine(push.key, push.round, begun.members), answer]

    def combine(self, key: int, round_: int, members: tuple[str, ...]) -> Sequence[Aggregate]:
        """Return the aggregates of a complete round: by default one sum of all members' contributions.

        For variants of FSA. The server takes a step along each aggregate, in this order.
        """
        return (Aggregate(key, round_, members),)

    def steps(self) -> Mapping[str, int]:
        """Return the local steps of the next round by worker, for variants of FSA that assign any."""
        return {}

    def pace(self, round_: int) -> Pace | None:
        """Return the pace of workers from this round's answers on, for variants of FSA that choose it."""
        return None


class Bsp(Fsa):
    """Bulk-synchronous parallel: FSA's name where there is one tier."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="bsp",
            summary="as fsa, but with one tier: every worker pushes to the global server itself",
            source="Valiant, CACM 1990; ps-lite",
            settings={"sync": {}, "paradigm": {"kind": "ps"}},
        ),
    )
