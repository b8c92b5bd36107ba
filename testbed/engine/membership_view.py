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
        self._left_out: dict[str, int] = {}  # by member: rounds before this one are without it, though it was there
        self._pushed_round: dict[int, int] = {}  # by key: the last round of which a contribution has come
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
        self._left_out.pop(member, None)
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
        """Note that ``member`` pushes nothing more of rounds before ``round_``. Return what the policy does now."""
        if self.first_round(member) >= round_:
            return []
        self._left_out[member] = round_
        return self._policy.on_member_began(member, round_)

    def resume_member(self, member: str, since: int) -> None:
        """Note that ``member``, with rounds from ``since`` on, used the server whose place this one takes."""
        self.absent.discard(member)
        self._first_rounds[member] = since
        self._policy.resume_member(member, since)

    def joined_round(self, member: str) -> int:
        """Return the round that was next when a member joined; 0 for the others. Earlier pushes are not its own."""
        return self._first_rounds.get(member, 0)

    def first_round(self, member: str) -> int:
        """Return the first round that a member takes part in: the one in which it joined, or that of ``on_began``."""
        return max(self.joined_round(member), self._left_out.get(member, 0))

    def may_pull(self, key: int, member: str) -> bool:
        """Return whether the value is the one before the member's first round; if not, ``on_aggregated`` names it."""
        aggregated = self._aggregated_round.get(key, self._resumed_round)
        if not self._policy.waits or aggregated >= self.first_round(member) - 1:
            return True
        self._waiting.setdefault(key, []).append(member)
        return False

    def on_pushed(self, key: int, round_: int) -> None:
        self._pushed_round[key] = max(round_, self._pushed_round.get(key, round_))

    def stuck_pulls(self) -> tuple[int, list[tuple[int, list[str]]]]:
        """Return (first, pulls): the first round that those present take part in; pulls that wait for the one before.

        Its members are all lost, and had pushed other keys of it: this key's round will never end. The pulls, by key
        with their members, wait no longer.
        """
        first = min((self.first_round(member) for member in self.weights.keys() - self.absent), default=0)
        pulls = []
        for key, waiting in self._waiting.items():
            stuck = [member for member in waiting if self.first_round(member) == first]
            if stuck and self._pushed_round.get(key, self._resumed_round) < first - 1:
                waiting[:] = [member for member in waiting if member not in stuck]
                pulls.append((key, stuck))
        return first, pulls

    def on_aggregated(self, key: int, round_: int) -> list[str]:
        """Note the end of a key's round. Return the members that are to be sent its value now."""
        self._aggregated_round[key] = round_
        return self._waiting.pop(key, [])

    def rescaling(self, members: Sequence[str]) -> float:
        """Return Σ weights of all members / Σ weights of ``members``: the factor by which their sum stands for all."""
        if not self._policy.waits or len(members) == len(self.weights):
            return 1.0
        return math.fsum(self.weights.values()) / math.fsum(self.weights[member] for member in members)
