"""FSA, fully synchronous aggregation: a round of a key is complete when every member has pushed it.

GeoMX's default, on both tiers (HiPS); with one tier it is bulk-synchronous parallel (Valiant, CACM 1990). Sums are
taken in rank order, so the result does not depend on the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.events import Answer, Combine, Contribution, Effect, Push
from testbed.policy.sync.rounds import Rounds


class Fsa:
    """Wait for all, combine all, answer all."""

    contribution: ClassVar = Contribution.GRADIENT
    tiers: ClassVar = (1, 2)

    @dataclass(frozen=True, slots=True)
    class Options:
        """FSA has no options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._members = members
        self._rounds = Rounds(members)
        self.waiting_for = self._rounds.missing

    def on_push(self, push: Push) -> list[Effect]:
        if not self._rounds.complete(push):
            return []
        everyone = (push.round,) * len(self._members)
        return [Combine(push.key, push.round, self._members), Answer(push.key, everyone, self._members, by=push.member)]


class Bsp(Fsa):
    """Bulk-synchronous parallel: FSA's name where there is one tier."""
