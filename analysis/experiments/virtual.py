"""One simulated run with real mathematics, in this process, and what experiments ask of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.results import atomic
from testbed.scenario.load import load, loads
from testbed.simulation.run import simulate


@dataclass(frozen=True, slots=True)
class Run:
    """All events, each with its ``node``; times are seconds since the start of training."""

    events: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def scores(self) -> list[tuple[float, float, float]]:
        """Seconds, accuracy, loss of each evaluation."""
        return sorted((event["snapshot_t"], event["accuracy"], event["loss"]) for event in self.of("evaluate"))

    def time_to(self, accuracy: float) -> float | None:
        """Seconds to the first evaluation that reached ``accuracy``."""
        return next((at_s for at_s, reached, _ in self.scores() if reached >= accuracy), None)

    def samples_per_s(self, end_s: float) -> float:
        """Samples trained on, by all workers, in rounds that ended before ``end_s``."""
        return float(sum(event["samples"] for event in self.of("round") if event["t"] <= end_s)) / end_s

    def compute_shares(self, end_s: float) -> dict[str, float]:
        """By worker: the share of the time until ``end_s`` in which it computed."""
        shares: dict[str, float] = {}
        for event in self.of("compute"):
            if event["work"] == "step" and event["t"] <= end_s:
                shares[event["node"]] = shares.get(event["node"], 0.0) + event["modelled_s"] / end_s
        return shares


def run(scenario: str | Path, *overrides: str) -> Run:
    """Simulate ``scenario`` (a file, or its text) to the end. Raises what a node raised."""
    torch.set_num_threads(1)
    read = load(scenario, overrides) if isinstance(scenario, Path) else loads(scenario, overrides=overrides)
    plan = build_plan(read, "simulate")
    with tempfile.TemporaryDirectory() as folder:
        for end in simulate(plan, make_role, Path(folder), lambda line: None).values():
            if end.error is not None:
                raise end.error
        events = []
        for path in sorted((Path(folder) / "events").glob("*.jsonl")):
            node = path.stem.replace(".", "/")
            events += [{"node": node, **json.loads(line)} for line in path.read_text().splitlines()]
    (begin_s,) = [event["t"] for event in events if event["kind"] == "train"]
    return Run([_since(event, begin_s) for event in events])


def kept(path: Path, measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What ``measure`` gives for ``arguments``, from ``path`` if it is there; a long experiment can be cut anywhere."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    found = measure(*arguments)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, json.dumps(found))
    return found


def _since(event: dict[str, Any], begin_s: float) -> dict[str, Any]:
    return event | {name: event[name] - begin_s for name in ("t", "t0", "snapshot_t") if name in event}
