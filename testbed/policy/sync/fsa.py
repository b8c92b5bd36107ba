"""FSA, fully synchronous aggregation: a round of a key is complete when every member has pushed it.

GeoMX's default, on both tiers (HiPS); with one tier it is bulk-synchronous parallel (Valiant, CACM 1990). Sums are
taken in rank order, so the result does not depend on the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.events import Answer, Combine, Effect


class Fsa:
    """Wait for all, combine all, answer all."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """FSA has no options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._members = members
        self._missing: dict[tuple[int, int], set[str]] = {}

    def on_push(self, member: str, key: int, round_: int, now: float) -> list[Effect]:
        missing = self._missing.setdefault((key, round_), set(self._members))
        assert member in missing, f"{member} pushed key {key} of round {round_} twice"
        missing.remove(member)
        if missing:
            return []
        del self._missing[key, round_]
        return [Combine(key, round_, self._members), Answer(key, round_, self._members)]

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        missing = self._missing.get((key, round_), set())
        return tuple(member for member in self._members if member in missing)
