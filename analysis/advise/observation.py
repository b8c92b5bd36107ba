"""Simulates a run in this process and observes when rounds end, how many bytes cross the WAN, and how well it learns.

Nothing stays on disk. Times are seconds on the run's clock since the start of training. Rounds are numbered from 0.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed.errors import Diverged, Interrupted, TestbedError
from testbed.ids import data_center_of
from testbed.paradigms import PARADIGMS
from testbed.plan.asynchronous import is_asynchronous
from testbed.plan.model import Plan
from testbed.results.events import read
from testbed.target import Target

DONE = "done"
STOPPED = "stopped"
DIVERGED = "diverged"
FAILED = "failed"


Arrival = tuple[float, int, tuple[str, str]]
"""A message over the WAN: the time of its arrival (s), its bytes, and its source and target data centres."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A run is stopped when it passes any of these limits.

    virtual_s    virtual time of training (s)
    clock_s      a time on this process' monotonic clock (s)
    processor_s  processor time of this process since the start of the run (s)
    wan_bytes    payload bytes received over the WAN
    """

    virtual_s: float = math.inf
    clock_s: float = math.inf
    processor_s: float = math.inf
    wan_bytes: float = math.inf


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Score:
    """An evaluation of the values after ``round``. ``at_s``: when the model had these values."""

    round: int
    at_s: float
    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True)
class Observation:
    """The results of a simulated run.

    status      ``done`` | ``stopped`` (by its limits) | ``diverged`` | ``failed``
    message     the reason for ``diverged`` or ``failed``
    ends_s      when each round ended: at the worker that evaluates; where the mean of all models is evaluated, at the
                last worker; where workers do not wait for each other, when their mean number of rounds was reached
    wan_bytes   payload and header bytes that had crossed the WAN when each round ended, since the start of training
    pairs       all bytes that crossed the WAN, by source and target data centre
    by_site     rounds of the workers of each data centre
    steps       training steps of a worker in a round, on average
    samples     training samples of all workers in a round, on average
    scores      evaluations, in the order of rounds
    steady      how many of ``ends_s`` show how long rounds take. If workers do not wait for each other, these are the
                ends before the last beginning of any worker's round: after that, fewer and fewer workers train
    """

    status: str
    message: str
    ends_s: tuple[float, ...] = ()
    wan_bytes: tuple[int, ...] = ()
    pairs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    by_site: Mapping[str, int] = field(default_factory=dict)
    steps: float = 0.0
    samples: float = 0.0
    scores: tuple[Score, ...] = ()
    steady: int = 0

    @property
    def rounds(self) -> int:
        return len(self.ends_s)

    def first_at(self, target: Target) -> Score | None:
        """Return the first of two successive scores that meet the target; ``time_to_target_s`` uses the same rule."""
        for score, following in pairwise(self.scores):
            if all(target.is_met(getattr(each, target.measure)) for each in (score, following)):
                return score
        return None

    def wan_bytes_by(self, at_s: float) -> int:
        """Return the bytes that had crossed the WAN at the end of the last round that ended by ``at_s``."""
        rounds = bisect_right(self.ends_s, at_s + 1e-9)
        return self.wan_bytes[rounds - 1] if rounds else 0


def observe(plan: Plan, limits: Limits = Limits()) -> Observation:
    """Simulate the Plan in this process until it ends or reaches its limits.

    A ``TestbedError`` of a node becomes the status ``diverged`` or ``failed``; any other error is raised.
    """
    from testbed.engine.roles import make_role
    from testbed.execution.torch_settings import settings_of_a_run
    from testbed.simulation.run import simulate

    brief = replace(plan, simulation=replace(plan.simulation, events="brief"), checkpoint_every=0)
    watch = _Watch(limits)
    with TemporaryDirectory(prefix="testbed-") as folder, settings_of_a_run():
        exits = simulate(brief, partial(make_role, files=None, watch=None), Path(folder), watch)
        transfers = list(_wan_transfers(Path(folder) / "events", watch.start_s))
    status, message = _status([end.error for end in exits.values() if end.error is not None])
    return watch.observation(status, message, plan, transfers)


def _status(errors: list[BaseException]) -> tuple[str, str]:
    if not errors:
        return DONE, ""
    causes = [error for error in errors if not isinstance(error, Interrupted)] or errors
    cause = causes[0]
    if isinstance(cause, Interrupted):
        return STOPPED, ""
    if isinstance(cause, Diverged):
        return DIVERGED, str(cause)
    if isinstance(cause, TestbedError):
        return FAILED, str(cause)
    raise cause


def _wan_transfers(events: Path, start_s: float) -> Iterator[Arrival]:
    """Yield the WAN messages of training rounds."""
    for event in read(events):
        if event["kind"] == "transfer" and event["tier"] == "wan" and event["round"] >= 0:
            size = event["payload_bytes"] + event["header_bytes"]
            yield event["t"] - start_s, size, (data_center_of(event["source"]), data_center_of(event["target"]))


class _Watch:
    """Watches the events of a run: keeps its rounds and scores, and interrupts it at its limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rounds: list[_Round] = []
        self._scores: list[tuple[int, float, float, float]] = []
        self._last_begin_s = 0.0  # when the latest round of any worker began
        self._received_bytes: dict[str, int] = {}  # over the WAN, by node
        self._begin_s = time.process_time()
        self._stopped = False
        self._master = ""
        self.start_s = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "train":
            self.start_s = event["t"]
            self._master = event["node"]
        elif kind == "round":
            steps = event.get("steps") or 1
            samples = event.get("samples") or 0
            self._rounds.append(_Round(event["t"], event["round"], event["node"], steps, samples))
            self._last_begin_s = max(self._last_begin_s, event["t0"])
        elif kind == "evaluate" and event.get("accuracy") is not None:
            loss = event.get("loss")
            known = math.nan if loss is None else loss
            self._scores.append((event["round"], event["snapshot_t"], event["accuracy"], known))
        elif kind == "status" and "wan_down_bytes" in event:
            self._received_bytes[event["node"]] = event["wan_down_bytes"]
        if self._is_over(event["t"]) and not self._stopped:
            self._stopped = True
            raise KeyboardInterrupt

    def _is_over(self, now_s: float) -> bool:
        limits = self._limits
        is_timed = not math.isinf(limits.processor_s)  # reading the processor time takes 0.4 ms on some machines
        return (
            now_s - self.start_s > limits.virtual_s
            or time.monotonic() > limits.clock_s
            or (is_timed and time.process_time() - self._begin_s > limits.processor_s)
            or sum(self._received_bytes.values()) > limits.wan_bytes
        )

    def observation(self, status: str, message: str, plan: Plan, transfers: list[Arrival]) -> Observation:
        rounds = sorted(self._rounds, key=lambda each: each.end_s)
        workers = len(plan.training_workers)
        told = len({each.worker for each in rounds}) or workers  # fewer than ``workers`` where some are folded
        ends = [end_s - self.start_s for end_s in self._ends_s(rounds, told, plan)]
        counted = sorted(transfers)
        sums = [0]
        pairs: Counter[tuple[str, str]] = Counter()
        for _, size, pair in counted:
            sums.append(sums[-1] + size)
            pairs[pair] += size
        times = [at for at, *_ in counted]
        return Observation(
            status=status,
            message=message,
            ends_s=tuple(ends),
            steady=bisect_right(ends, self._last_begin_s - self.start_s) if is_asynchronous(plan) else len(ends),
            wan_bytes=tuple(sums[bisect_right(times, end + 1e-9)] for end in ends),
            pairs=dict(pairs),
            by_site=dict(Counter(data_center_of(each.worker) for each in rounds)),
            steps=sum(each.steps for each in rounds) / max(1, len(rounds)),
            samples=workers * sum(each.samples for each in rounds) / max(1, len(rounds)),
            scores=tuple(Score(number, at - self.start_s, *scores) for number, at, *scores in sorted(self._scores)),
        )

    def _ends_s(self, rounds: list[_Round], workers: int, plan: Plan) -> list[float]:
        """Return ``Observation.ends_s`` on the run's clock. ``rounds``: of all ``workers``, sorted by their end."""
        of_master = [each.end_s for each in rounds if each.worker == self._master]
        if is_asynchronous(plan) or not of_master:
            return [each.end_s for each in rounds[workers - 1 :: workers]]
        if not PARADIGMS[plan.technique.paradigm.kind].models:
            return of_master
        of_round: dict[int, list[float]] = {}
        for each in rounds:
            of_round.setdefault(each.round, []).append(each.end_s)
        return [ends_s[-1] for _, ends_s in sorted(of_round.items()) if len(ends_s) == workers]


@dataclass(frozen=True, slots=True)
class _Round:
    """A round of a worker: its end on the run's clock, its number, and the worker's steps and samples in it."""

    end_s: float
    round: int
    worker: str
    steps: int
    samples: int
