"""SSP, stale-synchronous parallel: every push is applied on arrival, and the lead of the fastest member is bounded.

Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013. A member that
has finished c rounds may begin its next one iff c − min over members ≤ staleness. Staleness 0 is BSP's rhythm,
infinite staleness is TAP. Clocks are kept per key, since keys travel independently.

If the workers of a data centre do not wait for each other, a data centre with n workers pushes n times in a round: its
clock advances by one with every n-th push. Members that have left (a script that has ended; all members, once the
target accuracy is reached) no longer hold others back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.preset import Preset


class Ssp(SyncPolicy):
    """Every push is applied as it arrives; a worker too far ahead of the slowest waits for its reply."""

    waits: ClassVar[bool] = False
    holds: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="ssp",
            summary="one tier, and every push is applied as it comes; no worker is more than three rounds ahead",
            source="Ho et al., NIPS 2013",
            settings={"sync": {"staleness": 3}, "paradigm": {"kind": "ps"}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """``staleness``: rounds that the fastest member may be ahead of the slowest."""

        staleness: int = option(3, "rounds of lead allowed", min=0, max=10**9)

    def __init__(self, tier: Tier, options: Options) -> None:
        self._members = tier.names
        self._staleness = options.staleness
        self._pushes_per_round = {member.name: member.pushes_per_round for member in tier.members}
        self._first = dict.fromkeys(self._members, 0)  # by present member: its first round
        self._left: set[str] = set()
        self._pushes: dict[int, dict[str, int]] = {}  # by key and member
        self._held: dict[int, list[tuple[str, int]]] = {}  # by key: unanswered pushes, as (member, round)

    def on_push(self, push: Push) -> list[Effect]:
        pushes = self._pushes.setdefault(push.key, {name: self._first_pushes(name) for name in self._members})
        pushes[push.member] = max(pushes[push.member], push.round + 1)
        self._held.setdefault(push.key, []).append((push.member, push.round))
        return [Aggregate(push.key, push.round, (push.member,)), *self._free(push.key, push.member)]

    def on_members_left(self, members: Collection[str]) -> list[Effect]:
        self._left.update(members)
        return [effect for key in list(self._held) for effect in self._free(key, "")]

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        before, self._first = self._first, dict(first)
        begin = [name for name, round_ in first.items() if before.get(name) != round_]
        for pushes in self._pushes.values():
            pushes.update({name: self._first_pushes(name) for name in begin})
        for key, held in self._held.items():
            self._held[key] = [pair for pair in held if pair[0] in first]
        return [effect for key in sorted(self._pushes) for effect in self._free(key, "")]

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
        return member in self._first and member not in self._left

    def _first_pushes(self, member: str) -> int:
        return self._first.get(member, 0) * self._pushes_per_round[member]

    def _clocks(self, key: int) -> dict[str, int]:
        """Return the completed rounds of each member."""
        return {member: count // self._pushes_per_round[member] for member, count in self._pushes[key].items()}
