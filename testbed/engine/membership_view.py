"""Which members of a server are there, what the others count for without them, and who has joined."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from testbed.policy.events import Effect
from testbed.policy.sync.base import SyncPolicy


class MembershipView:
    """``shares``: what every member of the Plan counts for. ``gone``: who is not there."""

    def __init__(self, shares: Mapping[str, float], policy: SyncPolicy) -> None:
        self.shares, self._policy = dict(shares), policy
        self.gone: set[str] = set()
        self._begins: dict[str, int] = {}  # of those that have joined: their first rounds
        self._waiting: dict[int, list[str]] = {}  # by key: who is to have its value when the round before is over
        self._over: dict[int, int] = {}  # by key: the last round that was combined
        self._before = -1  # likewise, of keys of which none was combined here

    def begin_at(self, round_: int) -> None:
        """All rounds before ``round_`` are over: the run is resumed, or this server has joined it."""
        self._before = round_ - 1
        self._policy.begin_at(round_)

    def on_member_lost(self, member: str) -> list[Effect]:
        """It is gone. What to do now."""
        if member not in self.shares or member in self.gone:
            return []
        self.gone.add(member)
        self._begins.pop(member, None)
        for waiting in self._waiting.values():
            if member in waiting:
                waiting.remove(member)
        return self._policy.on_member_lost(member)

    def declare(self, member: str) -> bool:
        """It has come: for the first time, or again. Returns whether it has joined a run under way."""
        if member not in self.gone:
            return False
        self.gone.discard(member)
        self._begins[member] = self._policy.on_member_joined(member)
        return True

    def resume_member(self, member: str, since: int) -> None:
        """It comes from another server, whose place this one takes, and has rounds from ``since`` on."""
        self.gone.discard(member)
        self._begins[member] = since
        self._policy.resume_member(member, since)

    def begins(self, member: str) -> int:
        """The first round of a member that has joined; 0 for the others."""
        return self._begins.get(member, 0)

    def may_have(self, key: int, member: str) -> bool:
        """Whether the key's value is that after the round before its first. If not, ``combined`` names it in time."""
        if not self._policy.waits or self._over.get(key, self._before) >= self.begins(member) - 1:
            return True
        self._waiting.setdefault(key, []).append(member)
        return False

    def combined(self, key: int, round_: int) -> list[str]:
        """A round of a key is over. Returns who is to be sent its value now."""
        self._over[key] = round_
        return self._waiting.pop(key, [])

    def factor(self, members: Sequence[str]) -> float:
        """By how much the sum of ``members``' contributions is to grow, to stand for all; 1 if nobody is missing."""
        if not self._policy.waits or len(members) == len(self.shares):
            return 1.0
        return math.fsum(self.shares.values()) / math.fsum(self.shares[member] for member in members)
