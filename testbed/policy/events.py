"""What a synchronisation policy is told and what it decides: plain data, no clock, no I/O.

A server holds one policy for its tier. It tells the policy of every push and carries out the effects, in order. An
effect names members, never tensors: which contributions to combine, whom to answer. So the same decisions come out
in every world, and a test drives a policy with a list of pushes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec


class Contribution(StrEnum):
    """What a worker pushes at the end of its local work."""

    GRADIENT = "gradient"  # of one step; the server sums them
    MODEL = "model"  # its parameters after local steps, weighted so that the sum is a mean
    DELTA = "delta"  # parameters before minus after local steps (an outer gradient), weighted likewise


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker has measured by its own clock: seconds of one local step, and of moving its model to and fro."""

    step_s: float
    transfer_s: float


class Push(msgspec.Struct, frozen=True):
    """``member``'s contribution to (key, round) has arrived at ``now_s``. ``reports`` by worker, if any came along."""

    member: str
    key: int
    round: int
    now_s: float = 0.0
    reports: Mapping[str, WorkerReport] = msgspec.field(default_factory=dict)


class Aggregate(msgspec.Struct, frozen=True):
    """Sum the contributions of ``members`` to (key, round), in the order given.

    ``up``: pass the sum on, to the next tier or to the optimizer at the top, whose answer is the new value; otherwise
    the sum, over the weight of these members, is itself the new value. Effects after it happen when the value is there.
    """

    key: int
    round: int
    members: tuple[str, ...]
    up: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """Send the current value of ``key`` to ``members``, as the answer to each one's push of ``rounds[i]``.

    ``steps``: local steps that workers are to do before their next push, by worker; empty leaves that to them.
    ``by``: whose push it was that made this answer possible: all others had to wait for it.
    """

    key: int
    rounds: tuple[int, ...]
    members: tuple[str, ...]
    steps: Mapping[str, int] = field(default_factory=dict)
    by: str = field(default="", compare=False)


Effect = Aggregate | Reply


class SyncPolicy(Protocol):
    """Who waits for whom at one server. Made with its children, in rank order, and its options.

    contribution  what workers push under this algorithm
    tiers         the tiers on which it may stand
    waits         whether all members' contributions to a round are combined in one; then, without one of them, the
                  others' count for more
    """

    contribution: ClassVar[Contribution]
    waits: ClassVar[bool]
    tiers: ClassVar[tuple[int, ...]]
    Options: ClassVar[type[Any]]

    def on_push(self, push: Push) -> list[Effect]:
        """Returns what to do, in order."""

    def begin_at(self, round_: int) -> None:
        """All members have finished the rounds before ``round_``: the run is resumed, or joined."""

    def on_member_lost(self, member: str) -> list[Effect]:
        """``member`` is gone, and will not push again until it joins; what it has pushed counts. What to do now."""

    def on_member_joined(self, member: str) -> int:
        """``member``, which had left, is back without memory; returns the first round that it is to push."""

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        """Members whose push of (key, round) is still missing while others wait for it."""


@runtime_checkable
class SupportsFailover(Protocol):
    """A policy that can take the place of another one in mid-run."""

    def resume_member(self, member: str, since: int) -> None:
        """``member`` has rounds from ``since`` on."""


@runtime_checkable
class BoundedStaleness(Protocol):
    """A policy that has applied what it does not answer yet: until the slower have come closer."""

    def leave(self, members: Collection[str]) -> list[Effect]:
        """Nobody waits for ``members`` any more. Returns whom that frees."""
