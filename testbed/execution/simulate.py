"""Simulation: every node a coroutine in virtual time, over a flow-level network."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from testbed.execution.recovery import Attempts
from testbed.plan.model import Plan
from testbed.results.progress import Progress


def run(plan: Plan, directory: Path, report: Progress) -> None:
    """Run all roles to their end in this process. Raise the error of the first node that failed."""
    report({"kind": "stage", "name": "starting nodes"})
    import torch

    torch.set_num_threads(1)
    with Attempts(plan, directory, report) as attempts:
        attempts.run(partial(_attempt, plan, directory, report, attempts))


def _attempt(plan: Plan, directory: Path, report: Progress, attempts: Attempts, begin_s: float) -> None:
    from testbed.engine.roles import make_role
    from testbed.execution.resume import checkpoint_files
    from testbed.simulation.run import SimulationOptions, simulate

    files = checkpoint_files(plan, directory, report)
    options = SimulationOptions(begin_s=begin_s, due=attempts.clock, on_fault=attempts.on_fault)
    exits = simulate(plan, partial(make_role, files=files), directory, report, options)
    for end in exits.values():
        attempts.now_s = max(attempts.now_s, end.at_s)
    for end in exits.values():
        if end.error is not None:
            raise end.error
