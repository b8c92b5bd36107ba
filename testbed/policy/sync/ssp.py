"""SSP, stale-synchronous parallel: every push is applied on arrival, and the lead of the fastest member is bounded.

Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013. A member that
has finished c rounds may begin its next one iff c − min over members ≤ staleness. Staleness 0 is BSP's rhythm,
infinite staleness is TAP. Clocks are kept per key, since keys travel independently.

Where workers below do not wait for each other, a data centre with n of them pushes n times in a round: its clock then
advances by one with every n-th push. Members that have left (a script that has ended; all, once the target accuracy is
reached) no longer hold others back.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier


class Ssp(SyncPolicy):
    """Apply on arrival, reply within the bound."""

    waits: ClassVar[bool] = False
    holds: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """``staleness``: rounds that the fastest member may be ahead of the slowest."""

        staleness: int = option(3, "rounds of lead allowed", min=0, max=10**9)

    def __init__(self, tier: Tier, options: Options) -> None:
        self._members = tier.names
        self._staleness = options.staleness
        self._pushes_per_round = {member.name: member.pushes_per_round for member in tier.members}
        self._first_round = 0
        self._left: set[str] = set()
        self._gone: set[str] = set()
        self._joined: dict[str, int] = {}  # rounds at which members have come back
        self._pushes: dict[int, dict[str, int]] = {}  # by key and member
        self._held: dict[int, list[tuple[str, int]]] = {}  # key: members, and rounds of theirs, not answered yet

    def begin_at(self, round_: int) -> None:
        self._first_round = round_

    def on_push(self, push: Push) -> list[Effect]:
        pushes = self._pushes.setdefault(push.key, self._first_pushes())
        assert push.round >= pushes[push.member], f"{push.member} pushed key {push.key} of round {push.round} twice"
        pushes[push.member] = push.round + 1
        self._held.setdefault(push.key, []).append((push.member, push.round))
        return [Aggregate(push.key, push.round, (push.member,)), *self._free(push.key, push.member)]

    def on_members_left(self, members: Collection[str]) -> list[Effect]:
        self._left.update(members)
        return [effect for key in list(self._held) for effect in self._free(key, "")]

    def on_member_lost(self, member: str) -> list[Effect]:
        self._gone.add(member)
        for key, held in self._held.items():
            self._held[key] = [pair for pair in held if pair[0] != member]
        return [effect for key in sorted(self._pushes) for effect in self._free(key, member)]

    def on_member_joined(self, member: str) -> int:
        """Return the round of the slowest of the other members."""
        slowest = [self._slowest(key) for key in self._pushes]
        round_ = min((int(clock) for clock in slowest if clock < math.inf), default=self._first_round)
        self._gone.discard(member)
        self._joined[member] = round_
        for pushes in self._pushes.values():
            pushes[member] = round_ * self._pushes_per_round[member]
        return round_ * self._pushes_per_round[member]

    def on_member_began(self, member: str, round_: int) -> list[Effect]:
        self._joined[member] = round_ // self._pushes_per_round[member]
        for pushes in self._pushes.values():
            pushes[member] = round_
        return [effect for key in sorted(self._pushes) for effect in self._free(key, member)]

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        """Return the slowest members: every held reply waits for them."""
        if not self._held.get(key):
            return ()
        clocks = self._clocks(key)
        slowest = self._slowest(key)
        return tuple(member for member in self._members if clocks[member] == slowest and self._counts(member))

    def _free(self, key: int, by: str) -> list[Effect]:
        """Return the replies that are within the bound now; ``by`` is the member whose push released them."""
        held = self._held.get(key, [])
        reach = self._slowest(key) + self._staleness
        within = (pair for pair in held if pair[1] // self._pushes_per_round[pair[0]] < reach)
        free = sorted(within, key=lambda pair: (self._members.index(pair[0]), pair[1]))
        self._held[key] = [pair for pair in held if pair not in free]
        if not free:
            return []
        members, rounds = zip(*free, strict=True)
        return [Reply(key, rounds, members, by=by)]

    def _slowest(self, key: int) -> float:
        clocks = self._clocks(key)
        return min((clocks[member] for member in self._members if self._counts(member)), default=math.inf)

    def _counts(self, member: str) -> bool:
        return member not in self._left and member not in self._gone

    def _first_pushes(self) -> dict[str, int]:
        first = self._joined  # maybe of before it was known which round this server itself begins with
        return {m: max(first.get(m, 0), self._first_round) * count for m, count in self._pushes_per_round.items()}

    def _clocks(self, key: int) -> dict[str, int]:
        """Return the completed rounds of each member."""
        return {member: count // self._pushes_per_round[member] for member, count in self._pushes[key].items()}
