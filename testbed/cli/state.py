"""What is known of a run while it goes on: progress events folded into one row per data centre. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.ids import data_center_of
from testbed.plan.model import Plan


@dataclass(slots=True)
class NodeRow:
    """Latest word of each node of one data centre, by node."""

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
        return sum(self.losses.values()) / len(self.losses) if self.losses else None

    @property
    def waits(self) -> str:
        """What its slowest worker waits for."""
        behind = sorted(self.rounds, key=lambda node: (self.rounds[node], node))
        said = [self.waiting_for[node] for node in (*behind, *self.waiting_for) if self.waiting_for.get(node)]
        return said[0] if said else ""


@dataclass(slots=True)
class RunState:
    """The run as far as it has told. ``t`` is the run's own clock."""

    total: int
    rows: dict[str, NodeRow]
    stage: str = "starting"
    accuracy: float | None = None
    t: float = 0.0
    train_t: float = 0.0  # when training began
    simulated_rate: float | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def completed(self) -> int:
        """Rounds that everybody has completed."""
        return min((row.completed for row in self.rows.values() if row.rounds), default=0)

    @property
    def loss(self) -> float | None:
        losses = [row.loss for row in self.rows.values() if row.loss is not None]
        return sum(losses) / len(losses) if losses else None

    def wan_bytes(self) -> tuple[int, int]:
        """Sent and received by all data centres."""
        up = sum(sum(row.up_bytes.values()) for row in self.rows.values())
        return up, sum(sum(row.down_bytes.values()) for row in self.rows.values())

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold one progress event in; what is not understood changes nothing."""
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
            case "warning" | "error":
                self.warnings.append(str(event.get("message", "")))

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
        if event["kind"] == "round" or event.get("round"):  # a status says 0 before the first round too
            row.rounds[node] = event["round"]
        if "waiting_for" in event:
            row.waiting_for[node] = event["waiting_for"] or ""


def initial(plan: Plan) -> RunState:
    """Nothing has happened yet."""
    return RunState(plan.training.rounds, {site.name: NodeRow() for site in plan.network.sites})


def remaining_s(state: RunState, elapsed_s: float) -> float | None:
    """At most this much longer, if it goes on like this; ``None`` before the first round."""
    done = state.completed
    return elapsed_s / done * (state.total - done) if done else None
