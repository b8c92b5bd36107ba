"""The state of a run in progress, from its progress events: one row per data centre. Does no input or output."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from testbed.ids import data_center_of
from testbed.plan.asynchronous import shares_rounds
from testbed.plan.model import Plan

_OF_PRESENT = ("round", "loss", "waiting_for")  # fields only of nodes that take part
Ends = tuple[tuple[int, int], tuple[int, int]]
"""The least and the most training steps of a worker, and the least and the most samples."""


@dataclass(slots=True)
class NodeRow:
    """The nodes of one data centre.

    nodes  the latest fields of each node's events, without those that were ``None``
    work   training steps and samples of each worker so far
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    work: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def of(self, name: str) -> list[Any]:
        """Return the values of a field of all nodes that have it."""
        return [latest[name] for latest in self.nodes.values() if name in latest]

    @property
    def completed(self) -> int:
        """Rounds that all workers of the data centre have completed."""
        return int(min(self.of("round"), default=-1)) + 1

    @property
    def loss(self) -> float | None:
        """Mean loss of the data centre's workers."""
        return fmean(losses) if (losses := self.of("loss")) else None

    def ends(self) -> Ends:
        """Return the least and the most training steps of a worker so far, and the least and the most samples."""
        return _ends(self.work.values())

    @property
    def waits(self) -> str:
        """The name of the wait of the slowest worker that waits; empty if none waits."""
        slowest_first = sorted(
            self.nodes, key=lambda node: ("round" not in self.nodes[node], self.nodes[node].get("round", 0), node)
        )
        return next(filter(None, (self.nodes[node].get("waiting_for") for node in slowest_first)), "")


@dataclass(slots=True)
class RunState:
    """The state of a run, from its events.

    t          time of the last event on the run's clock, in s
    shared_by  number of workers that share the rounds because they do not wait for each other: ``total`` is then the
               mean over them; 0 if every worker makes ``total`` rounds
    tellers    workers that report samples: in a pipeline, those of the last stage; empty: all workers
    """

    total: int  # rounds; 0: unknown, as a user's program decides
    rows: dict[str, NodeRow]
    stage: str = "starting"
    accuracy: float | None = None
    t: float = 0.0
    train_t: float = 0.0  # when training began
    simulated_rate: float | None = None  # virtual seconds per second
    computes: bool = True  # if not, losses are meaningless
    shared_by: int = 0
    tellers: frozenset[str] = frozenset()
    before: int | None = None  # rounds completed before this run; known from the first completed round on
    _reached: Counter[int] = field(default_factory=Counter)  # number of data centres by their completed rounds
    _gone: set[str] = field(default_factory=set)  # nodes that were lost or have left
    _copies: dict[str, int] = field(default_factory=dict)  # number of workers, by node that represents several
    _made: int = 0  # rounds of all workers together

    @property
    def completed(self) -> int:
        """Rounds that all workers have completed; if workers share the rounds, the mean over the workers.

        Data centres that have not completed a round do not count.
        """
        if self.shared_by:
            return (self.before or 0) + self._made // self.shared_by
        return min((rounds for rounds in self._reached if rounds), default=0)

    @property
    def loss(self) -> float | None:
        """Mean loss of the data centres."""
        losses = [row.loss for row in self.rows.values() if row.loss is not None]
        return fmean(losses) if losses else None

    def wan_bytes(self) -> int:
        """Return the bytes that all data centres have sent over the WAN. Each byte counts once."""
        return sum(sum(row.of("wan_up_bytes")) for row in self.rows.values())

    def rounds(self) -> tuple[int, int]:
        """Return the least and the most rounds of a worker."""
        made = [each["round"] + 1 for row in self.rows.values() for each in row.nodes.values() if "round" in each]
        return min(made, default=0), max(made, default=0)

    def work(self) -> Ends:
        """Return the least and the most training steps of a ``maker`` so far, and the least and the most samples."""
        return _ends(
            work
            for row in self.rows.values()
            for node, work in row.work.items()
            if not self.tellers or node in self.tellers
        )

    @property
    def maker(self) -> str:
        """``worker`` or, in a pipeline, ``replica``: the unit that makes a training step."""
        return "replica" if self.tellers else "worker"

    def take(self, event: Mapping[str, Any]) -> None:
        """Update the state by one progress event; unknown kinds are ignored."""
        self.t = float(event.get("t") or self.t)
        self.simulated_rate = event.get("rate", self.simulated_rate)
        match event["kind"]:
            case "stage":
                self.stage = str(event["name"])
            case "train":
                self.stage = "training" if self.total else "running"
                self.train_t = self.t
                self._gone.clear()
            case "start" if event.get("stands_for"):
                self._copies[str(event["node"])] = int(event["stands_for"])
            case "evaluate":
                self.accuracy = event.get("accuracy", self.accuracy)
            case "epoch":
                for node in str(event.get("targets", "")).split(", "):
                    self._take_change(node, begins=bool(event.get("begins")))
            case "status" | "round":
                self._take_work(str(event.get("node", "")), event)

    def _take_change(self, node: str, begins: bool) -> None:
        """Record that a node has joined or is gone. The rounds and waits of a gone node no longer count."""
        if begins:
            self._gone.discard(node)
            return
        self._gone.add(node)
        row = self.rows.get(data_center_of(node))
        if row is not None and node in row.nodes:
            before = row.completed
            for name in _OF_PRESENT:
                row.nodes[node].pop(name, None)
            self._move(before, row.completed)

    def _take_work(self, node: str, event: Mapping[str, Any]) -> None:
        known = {name: value for name, value in event.items() if value is not None}
        if event["kind"] == "status" and not event.get("round"):
            known.pop("round", None)  # a status has round 0 before the first round, too
        if not self.computes:
            known.pop("loss", None)
        if node in self._gone:  # its reports may arrive after it was lost
            known = {name: value for name, value in known.items() if name not in _OF_PRESENT}
        row = self.rows.get(data_center_of(node))
        if row is None:
            return
        before = row.completed
        row.nodes[node].update(known)
        self._move(before, row.completed)
        if event["kind"] == "round":
            if self.before is None:
                self.before = int(event.get("round") or 0)
            self._made += self._copies.get(node, 1)
            work = row.work[node]
            work[0] += int(known.get("steps", 1))
            work[1] += int(known.get("samples", 0))

    def _move(self, before: int, after: int) -> None:
        """Update the counts when a data centre has completed a round; counting all again would be too slow."""
        if before != after:
            self._reached[after] += 1
            self._reached[before] -= 1
            if self._reached[before] <= 0:
                del self._reached[before]


def _ends(work: Iterable[list[int]]) -> Ends:
    steps, samples = zip(*(list(work) or [[0, 0]]), strict=True)
    return (min(steps), max(steps)), (min(samples), max(samples))


def initial(plan: Plan) -> RunState:
    """Return the state before the first event."""
    rounds = plan.training.rounds if plan.program is None else 0
    rows = {site.name: NodeRow() for site in plan.network.sites}
    shared_by = len(plan.training_workers) if shares_rounds(plan) else 0
    computes = plan.training.compute != "modelled"
    return RunState(rounds, rows, computes=computes, shared_by=shared_by, tellers=_tellers(plan))


def _tellers(plan: Plan) -> frozenset[str]:
    if plan.pipeline is None:
        return frozenset()
    return frozenset(node.name for node in plan.with_role("worker") if node.stage == plan.pipeline.stages - 1)
