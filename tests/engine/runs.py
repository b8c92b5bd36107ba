"""One scenario, some overrides, the virtual world: what every node ended with, and what its log says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from testbed.engine.checkpoint import CheckpointFiles
from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results.events import read
from testbed.scenario.load import load
from testbed.simulation.run import simulate

THREE_SITES = Path(__file__).parent / "three_sites.yaml"


@dataclass(frozen=True)
class Simulated:
    """One finished run."""

    plan: Plan
    results: dict[str, Any]  # what each role returned
    events: list[dict[str, Any]]  # of all nodes, each with its "node", by time

    def of_kind(self, kind: str, node: str | None = None) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind and node in (None, event["node"])]

    def parameters(self, worker: str) -> torch.Tensor:
        return torch.cat(self.results[worker])

    def hashes(self) -> set[str]:
        """Hashes of the parameters of all workers and local servers."""
        roles = ("worker", "server")
        return {event["parameters_sha256"] for event in self.of_kind("final") if event["role"] in roles}

    def round_s(self, worker: str, skip: int = 2) -> float:
        """Mean time from one round's beginning to the next's, the first ``skip`` left out."""
        begins = [event["t0"] for event in self.of_kind("round", worker)]
        return float(begins[-1] - begins[skip]) / (len(begins) - 1 - skip)


def run(directory: Path, *overrides: str, scenario: Path = THREE_SITES) -> Simulated:
    """Simulate to the end, from what checkpoints ``directory`` holds; every node must end well.

    Over flows, which are quick, unless ``overrides`` say otherwise.
    """
    return run_plan(directory, build_plan(load(scenario, ("simulation.network=flows", *overrides)), "simulate"))


def errors(directory: Path, *overrides: str, scenario: Path) -> dict[str, str]:
    """Simulate, and return what ended each node that did not end well."""
    exits = simulate(build_plan(load(scenario, overrides), "simulate"), make_role, directory, lambda event: None)
    return {name: str(end.error) for name, end in exits.items() if end.error is not None}


def run_plan(directory: Path, plan: Plan) -> Simulated:
    """Simulate a Plan likewise."""
    torch.set_num_threads(1)
    files = CheckpointFiles(directory / "checkpoints", plan) if plan.checkpoint_every else None
    exits = simulate(plan, partial(make_role, files=files), directory, lambda event: None)
    errors = {name: end.error for name, end in exits.items() if end.error is not None}
    assert not errors, errors
    events = [event for event in read(directory / "events") if event["node"] in exits]
    events.sort(key=lambda event: event["t"])
    return Simulated(plan, {name: end.result for name, end in exits.items()}, events)


MODELLED = (
    "training.compute=modelled",
    "training.data=none",
    "training.model={kind: declared, name: resnet18}",
    "device.step_time=1 s",
    "topology.lan.rate=10 Gbit/s",
    "order={kind: fifo, slice: whole}",  # a key is one message
)
