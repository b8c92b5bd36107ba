"""SSP, stale-synchronous parallel: every push is applied as it comes, but nobody runs too far ahead.

Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013. A member that
has finished c rounds may begin its next one iff c − min over members ≤ staleness. Staleness 0 is BSP's rhythm,
infinite staleness is TAP. Clocks are kept per key, since keys travel independently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from testbed.policy.events import Answer, Combine, Contribution, Effect, Push


class Ssp:
    """Apply at once, answer within the bound."""

    contribution: ClassVar = Contribution.GRADIENT
    tiers: ClassVar = (1, 2)

    @dataclass(frozen=True, slots=True)
    class Options:
        """``staleness``: rounds that the fastest member may be ahead of the slowest."""

        staleness: int = field(default=3, metadata={"help": "rounds of lead allowed", "min": 0, "max": 10**9})

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._members, self._staleness = members, options.staleness
        self._clocks: dict[int, dict[str, int]] = {}
        self._held: dict[int, dict[str, int]] = {}  # key: member: the round that it waits to be answered

    def on_push(self, push: Push) -> list[Effect]:
        clocks = self._clocks.setdefault(push.key, dict.fromkeys(self._members, 0))
        assert push.round == clocks[push.member], f"{push.member} pushed key {push.key} of round {push.round} twice"
        clocks[push.member] = push.round + 1
        held = self._held.setdefault(push.key, {})
        held[push.member] = push.round
        free = [member for member in self._members if member in held and self._may_go_on(clocks, member)]
        rounds = tuple(held.pop(member) for member in free)
        effects: list[Effect] = [Combine(push.key, push.round, (push.member,))]
        return [*effects, Answer(push.key, rounds, tuple(free))] if free else effects

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        """The slowest, for whom all held members wait."""
        if not self._held.get(key):
            return ()
        clocks = self._clocks[key]
        slowest = min(clocks.values())
        return tuple(member for member in self._members if clocks[member] == slowest)

    def _may_go_on(self, clocks: dict[str, int], member: str) -> bool:
        return clocks[member] - min(clocks.values()) <= self._staleness
