"""A small job with faults, on any back end: how it ended, what its nodes hold, what its logs say."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from testbed.errors import TestbedError
from testbed.execution import local, simulate
from testbed.execution.deployment import alone
from testbed.plan.asynchronous import shares_rounds
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results.events import PartReader, parts
from testbed.results.progress import Progress
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES

JOB = (
    "training.model={kind: mlp, hidden: 8}",
    "training.rounds=10",
    "training.evaluate_every=4",
    "optimizer={kind: adam, learning_rate: 0.01}",
    "device.variation=30 %",
    "simulation.network=flows",
)
RESTART = "recovery={on_failure: restart, delay: 100 ms}"
CONTINUE = "recovery={on_failure: continue}"
_KIND = re.compile(rb'\{"t":[^,]+,"kind":"(\w+)"')  # as every line begins
BACK_ENDS = {"simulate": simulate.run_jobs, "local": local.run_jobs}


def execute(on: str, plan: Plan, directory: Path, report: Progress = lambda event: None) -> None:
    """Run the nodes of a Plan to their end in this process. Raise the first cause if one fails."""
    (error,) = BACK_ENDS[on](alone(plan, directory, report))
    if error is not None:
        raise error


@dataclass(frozen=True)
class Ended:
    """``error``: what ended it, if it did not end well."""

    plan: Plan
    directory: Path
    error: TestbedError | None
    told: list[dict[str, Any]]

    def events(self, *kinds: str, node: str | None = None) -> list[dict[str, Any]]:
        """In order of time. Only lines of these kinds are decoded."""
        lines = [line for kind in kinds for line in self._lines.get(kind, ())]
        events = [msgspec.json.decode(line) for _, line in sorted(lines)]
        return sorted((event for event in events if node in (None, event["node"])), key=lambda event: event["t"])

    @cached_property
    def _lines(self) -> dict[str, list[tuple[int, bytes]]]:
        """By kind; each with its number among all."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        count = itertools.count()
        for part in parts(self.directory / "events"):
            for line in PartReader(part).lines().splitlines():
                kind = _KIND.match(line)
                assert kind is not None, line
                found.setdefault(kind[1].decode(), []).append((next(count), line))
        return found

    def hashes(self) -> set[str]:
        """Of what all holders of parameters hold at the end."""
        return {event["parameters_sha256"] for event in self.events("final") if event.get("parameters_sha256")}

    def rounds(self, node: str) -> list[int]:
        return [event["round"] for event in self.events("round", node=node)]


def plan_of(*overrides: str, on: str = "simulate", scenario: Path = THREE_SITES) -> Plan:
    return build_plan(load(scenario, (*JOB, *overrides)), on)


def run(directory: Path, *overrides: str, on: str = "simulate", listens: bool = True) -> Ended:
    """Faults are written as ``fault(...)`` among the overrides. Who does not listen does not keep what was told."""
    return run_plan(plan_of(*overrides, on=on), directory, listens)


def run_plan(plan: Plan, directory: Path, listens: bool = True) -> Ended:
    told: list[dict[str, Any]] = []
    error = None
    try:
        execute(plan.back_end, plan, directory, told.append if listens else lambda line: None)
    except TestbedError as caught:
        error = caught
    return Ended(plan, directory, error, told)


def rounds_of_all(ended: Ended, worker: str, last: int) -> list[int]:
    """Return what a worker that stays makes: all rounds up to ``last``; of shared ones some, and none is left out."""
    return list(range(len(set(ended.rounds(worker))) if shares_rounds(ended.plan) else last + 1))


def faults(*texts: str) -> str:
    """An override: ``faults("kind: kill, node: east/server0, round: 3")``."""
    return "faults=[" + ", ".join(f"{{{text}}}" for text in texts) + "]"
