"""Loopback: every node a real process, real TCP on 127.0.0.1, no WAN."""

from __future__ import annotations

import time
from pathlib import Path

from testbed.execution.processes import run_nodes
from testbed.plan.model import Plan
from testbed.results.progress import Progress


def run(plan: Plan, directory: Path, report: Progress) -> None:
    """Run all nodes to their end. Raise the first cause if one fails."""
    report({"kind": "stage", "name": "starting nodes"})
    from testbed.engine.learner import warm_up
    from testbed.execution.roles import require_machine

    require_machine(plan)
    warm_up(plan)
    run_nodes(plan, directory, report, time.monotonic_ns())
