"""Whole runs of workers whose sums a library makes, each a process."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from testbed.engine.learner import warm_up
from testbed.engine.scheduler import Scheduler
from testbed.execution.distributed.role import distributed_worker
from testbed.plan.model import Plan
from testbed.realtime.fleet import Fleet
from tests.realtime.processes import Processes


@dataclass(frozen=True)
class Forked:
    """A run of real processes, as whose connections one process sees only its own."""

    values: dict[str, list[torch.Tensor]]
    events: dict[str, list[dict[str, Any]]]


def forked(directory: Path, plan: Plan) -> Forked:
    warm_up(plan)  # as a back end does: a child that imports for seconds gives no sign of life
    runs = Processes(directory)
    programs = {
        node.name: Scheduler(plan) if node.role == "scheduler" else distributed_worker(plan, node)
        for node in plan.nodes
    }
    Fleet(plan, runs.launch(programs)).run()
    names = [worker.name for worker in plan.with_role("worker")]
    values = {name: pickle.loads((directory / f"{name.replace('/', '.')}.result").read_bytes()) for name in names}
    return Forked(values, {name: runs.events(name) for name in names})


def received(run: Forked, node: str, message: str) -> dict[str, int]:
    """Bytes that a library's connections have carried to ``node``, by whom they came from."""
    by_source: dict[str, int] = {}
    for event in run.events[node]:
        if event["kind"] == "transfer" and event["message"] == message:
            by_source[event["source"]] = by_source.get(event["source"], 0) + event["payload_bytes"]
    return by_source
