"""What a synchronisation policy is told and what it decides: plain data, no clock, no I/O.

A server holds one policy for its tier. It tells the policy of every push and carries out the effects, in order. An
effect names members, never tensors: which contributions to combine, whom to answer. So the same decisions come out
in every world, and a test drives a policy with a list of pushes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Combine:
    """Sum the contributions of ``members`` to (key, round), in the order given, and pass the sum on.

    "On" is the next tier, or the optimizer at the top tier. Effects after it happen when the new value is there.
    """

    key: int
    round: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Send the current value of ``key`` to ``members``, as the answer to their push of ``round``."""

    key: int
    round: int
    members: tuple[str, ...]


Effect = Combine | Answer


class SyncPolicy(Protocol):
    """Who waits for whom at one server. ``members`` are its children, in rank order."""

    def on_push(self, member: str, key: int, round_: int, now: float) -> list[Effect]:
        """``member``'s contribution to (key, round) has arrived at ``now`` seconds. Returns what to do, in order."""

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        """Members whose push of (key, round) is still missing; empty when nobody waits for them."""
