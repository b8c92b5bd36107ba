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

    delay_s  where workers are ahead of their answers (``SyncPolicy.lags``): the shortest time until a first value was
             there; ``transfer_s`` is then what a model took beyond that, without what it waited for models before it
    """

    step_s: float
    transfer_s: float
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How far workers go on without answers, and how much they send, from now on.

    staleness  rounds of which a worker has pushed its contribution and has no new values yet, at most
    share      of the elements of a contribution that a codec sends, where it can be set (``Codec.adjust``)
    """

    staleness: int
    share: float


class Push(msgspec.Struct, frozen=True):
    """``member``'s contribution to (key, round) has arrived at ``now_s``. ``reports`` by worker, if any came along."""

    member: str
    key: int
    round: int
    now_s: float = 0.0
    reports: Mapping[str, WorkerReport] = msgspec.field(default_factory=dict)


class Aggregate(msgspec.Struct, frozen=True):
    """Sum the contributions of ``members`` to (key, round), in the order given.

    ``up``: pass the sum on, to the next tier or to the optimizer at the top, whose result is the new value; otherwise
    the sum is itself the new value. Effects that follow are carried out once the new value is known.
    ``rounds``: of the members' pushes, where they are of other rounds than ``round`` (a late contribution).
    """

    key: int
    round: int
    members: tuple[str, ...]
    up: bool = True
    rounds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """Send the current value of ``key`` to each of ``members``, in reply to its push of round ``rounds[i]``.

    steps  local steps of workers' next round, by worker; a worker that is not named does what its algorithm declares
           (``SyncPolicy.local_steps``). The assignment of a tier overrides that of the tier above, worker by worker
    last   the run ends with this reply; only the top tier may say so
    pace   of workers from now on, where the algorithm chooses it; ``None``: as it is
    by     the member whose push made this reply possible: all others had to wait for it
    """

    key: int
    rounds: tuple[int, ...]
    members: tuple[str, ...]
    steps: Mapping[str, int] = field(default_factory=dict)
    last: bool = False
    pace: Pace | None = None
    by: str = field(default="", compare=False)


class Discard(msgspec.Struct, frozen=True):
    """Forget ``member``'s contribution to (key, round): nothing is made of it. A reply to it may follow."""

    key: int
    round: int
    member: str


class Alarm(msgspec.Struct, frozen=True):
    """Call ``SyncPolicy.on_alarm`` with ``key`` and ``number`` when this server's clock shows ``at_s``."""

    key: int
    number: int
    at_s: float


Effect = Aggregate | Reply | Discard | Alarm
