"""A server's view of its members: which of them take part, from which round on, and what the others count for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from testbed.policy.events import Effect
from testbed.policy.sync.base import SyncPolicy


class MembershipView:
    """``weights``: what every member of the Plan counts for. ``absent``: the members that do not take part now.

    A member that joins a run in progress starts with round r, which the policy chooses. Its first value of a key must
    be the one after round r - 1: an older one would give it other parameters than all others have in round r. So a
    pull that comes before the end of round r - 1 waits here until that round is aggregated.
    """

    def __init__(self, weights: Mapping[str, float], policy: SyncPolicy) -> None:
        self.weights, self._policy = dict(weights), policy
        self.absent: set[str] = set()
        self._first_rounds: dict[str, int] = {}  # of members that have joined
        self._waiting: dict[int, list[str]] = {}  # by key: members whose pull waits for the end of the round before
        self._aggregated_round: dict[int, int] = {}  # by key: the last round that was aggregated
        self._resumed_round = -1  # likewise, for keys of which no round was aggregated here

    def begin_at(self, round_: int) -> None:
        """Note that all rounds before ``round_`` are over: the run is resumed, or this server has joined it."""
        self._resumed_round = round_ - 1
        self._policy.begin_at(round_)

    def on_member_lost(self, member: str) -> list[Effect]:
        """Note that ``member`` is lost or has left. Return what the policy does now."""
        if member not in self.weights or member in self.absent:
            return []
        self.absent.add(member)
        self._first_rounds.pop(member, None)
        for waiting in self._waiting.values():
            if member in waiting:
                waiting.remove(member)
        return self._policy.on_member_lost(member)

    def on_declared(self, member: str) -> bool:
        """Note that ``member`` has declared its keys. Return whether it has joined a run in progress."""
        if member not in self.absent:
            return False
        self.absent.discard(member)
        self._first_rounds[member] = self._policy.on_member_joined(member)
        return True

    def on_began(self, member: str, round_: int) -> list[Effect]:
        """Note the first round of a member that has joined, as its servers have agreed on. Return what follows."""
        if self._first_rounds.get(member, round_) >= round_:
            return []
        self._first_rounds[member] = round_
        return self._policy.on_member_began(member, round_)

    def resume_member(self, member: str, since: int) -> None:
        """Note that ``member``, with rounds from ``since`` on, used the server whose place this one takes."""
        self.absent.discard(member)
        self._first_rounds[member] = since
        self._policy.resume_member(member, since)

    def first_round(self, member: str) -> int:
        """Return the first round of a member that has joined; 0 for the others."""
        return self._first_rounds.get(member, 0)

    def may_pull(self, key: int, member: str) -> bool:
        """Return whether the value is the one before the member's first round; if not, ``on_aggregated`` names it."""
        aggregated = self._aggregated_round.get(key, self._resumed_round)
        if not self._policy.waits or aggregated >= self.first_round(member) - 1:
            return True
        self._waiting.setdefault(key, []).append(member)
        return False

    def on_aggregated(self, key: int, round_: int) -> list[str]:
        """Note the end of a key's round. Return the members that are to be sent its value now."""
        self._aggregated_round[key] = round_
        return self._waiting.pop(key, [])

    def rescaling(self, members: Sequence[str]) -> float:
        """Return Σ weights of all members / Σ weights of ``members``: the factor by which their sum stands for all."""
        if not self._policy.waits or len(members) == len(self.weights):
            return 1.0
        return math.fsum(self.weights.values()) / math.fsum(self.weights[member] for member in members)
