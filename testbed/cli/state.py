"""The state of a run in progress: progress events, folded into one row per data centre. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.ids import data_center_of
from testbed.plan.model import Plan


@dataclass(slots=True)
class NodeRow:
    """Latest values of the nodes of one data centre, by node."""

    rounds: dict[str, int] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    up_bytes: dict[str, int] = field(default_factory=dict)
    down_bytes: dict[str, int] = field(default_factory=dict)
    waiting_for: dict[str, str] = field(default_factory=dict)

    @property
    def completed(self) -> int:
        """Rounds that all of its workers have completed."""
        return min(self.rounds.values(), default=-1) + 1

    @property
    def loss(self) -> float | None:
        """Mean loss of its workers."""
        return sum(self.losses.values()) / len(self.losses) if self.losses else None

    @property
    def waits(self) -> str:
        """What its slowest waiting worker waits for; empty if none waits."""
        slowest_first = sorted(self.rounds, key=lambda node: (self.rounds[node], node))
        waits = (self.waiting_for.get(node) for node in (*slowest_first, *self.waiting_for))
        return next(filter(None, waits), "")


@dataclass(slots=True)
class RunState:
    """The run as its events describe it. ``t`` is the time of the last one on the run's clock, in s."""

    total: int  # rounds
    rows: dict[str, NodeRow]
    stage: str = "starting"
    accuracy: float | None = None
    t: float = 0.0
    train_t: float = 0.0  # when training began
    simulated_rate: float | None = None  # virtual seconds per second

    @property
    def completed(self) -> int:
        """Rounds that all workers have completed."""
        return min((row.completed for row in self.rows.values() if row.rounds), default=0)

    @property
    def loss(self) -> float | None:
        """Mean loss of the data centres."""
        losses = [row.loss for row in self.rows.values() if row.loss is not None]
        return sum(losses) / len(losses) if losses else None

    def wan_bytes(self) -> tuple[int, int]:
        """Return the bytes sent and received over the WAN by all data centres."""
        up = sum(sum(row.up_bytes.values()) for row in self.rows.values())
        return up, sum(sum(row.down_bytes.values()) for row in self.rows.values())

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one progress event in; unknown kinds are ignored."""
        self.t = float(event.get("t") or self.t)
        self.simulated_rate = event.get("rate", self.simulated_rate)
        match event["kind"]:
            case "stage":
                self.stage = str(event["name"])
            case "train":
                self.stage, self.train_t = "training", self.t
            case "evaluate":
                self.accuracy = event.get("accuracy", self.accuracy)
            case "status" | "round":
                self._take_status(event)

    def _take_status(self, event: Mapping[str, Any]) -> None:
        node = str(event.get("node", ""))
        row = self.rows.get(data_center_of(node))
        if row is None:
            return
        tables: dict[str, dict[str, Any]] = {
            "loss": row.losses, "wan_up_bytes": row.up_bytes, "wan_down_bytes": row.down_bytes,
        }  # fmt: skip
        for name, latest in tables.items():
            if event.get(name) is not None:
                latest[node] = event[name]
        if event["kind"] == "round" or event.get("round"):  # a status has round 0 before the first round, too
            row.rounds[node] = event["round"]
        if "waiting_for" in event:
            row.waiting_for[node] = event["waiting_for"] or ""


def initial(plan: Plan) -> RunState:
    """Return the state before the first event."""
    return RunState(plan.training.rounds, {site.name: NodeRow() for site in plan.network.sites})


def remaining_s(state: RunState, elapsed_s: float) -> float | None:
    """Return how much longer the run takes at most at its mean speed, in s; ``None`` before the first round."""
    done = state.completed
    return elapsed_s / done * (state.total - done) if done else None
