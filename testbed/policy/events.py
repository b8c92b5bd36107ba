"""The input and output of a synchronisation policy: pushes in, effects out, as plain data.

An effect names members, never tensors: which contributions to aggregate, and which members get a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec


class Contribution(StrEnum):
    """What a worker pushes at the end of its local work."""

    GRADIENT = "gradient"  # of one step; the server sums them
    MODEL = "model"  # its parameters after local steps, weighted so that the sum is a mean
    DELTA = "delta"  # parameters before minus after local steps (an outer gradient), weighted likewise


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Durations measured by a worker's own clock: of one local step, and of sending and receiving its model.

    delay_s  only if workers run ahead of their answers (``SyncPolicy.lags``): the shortest time until a round's first
             value arrived. ``transfer_s`` is then the rest of the model's transfer, without waits for earlier models
    """

    step_s: float
    transfer_s: float
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How far workers run ahead of their answers, and how much they send, from now on.

    staleness  how many rounds a worker may have pushed, at most, without having received their new values
    share      share of a contribution's elements that the codec sends, if it can be set (``Codec.adjust``)
    """

    staleness: int
    share: float


class Push(msgspec.Struct, frozen=True):
    """``member``'s contribution to (key, round) arrived at ``now_s``, perhaps with ``reports``, by worker."""

    member: str
    key: int
    round: int
    now_s: float = 0.0
    reports: Mapping[str, WorkerReport] = msgspec.field(default_factory=dict)


class Aggregate(msgspec.Struct, frozen=True):
    """Sum the contributions of ``members`` to (key, round), in the order given.

    ``up``: pass the sum on to the next tier, or to the optimizer at the top, whose result is the new value; otherwise
    the sum itself is the new value. The effects that follow are carried out once the new value is known.
    ``rounds``: the round of each member's push, if not all are of ``round`` (late contributions).
    """

    key: int
    round: int
    members: tuple[str, ...]
    up: bool = True
    rounds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """Send the current value of ``key`` to each of ``members``, in reply to its push of round ``rounds[i]``.

    steps  local steps of workers' next round, by worker; a worker that is not named does as many as its algorithm
           declares (``SyncPolicy.local_steps``). A tier's assignment overrides that of the tier above, worker by worker
    last   whether the run ends with this reply; only the top tier may set it
    pace   pace of workers from now on, if the algorithm chooses it; ``None``: unchanged
    by     the member whose push made this reply possible: all other members had to wait for it
    """

    key: int
    rounds: tuple[int, ...]
    members: tuple[str, ...]
    steps: Mapping[str, int] = field(default_factory=dict)
    last: bool = False
    pace: Pace | None = None
    by: str = field(default="", compare=False)


class Discard(msgspec.Struct, frozen=True):
    """Drop ``member``'s contribution to (key, round) unused. A reply to it may follow."""

    key: int
    round: int
    member: str


class Alarm(msgspec.Struct, frozen=True):
    """Call ``SyncPolicy.on_alarm`` with ``key`` and ``number`` when this server's clock shows ``at_s``."""

    key: int
    number: int
    at_s: float


Effect = Aggregate | Reply | Discard | Alarm
