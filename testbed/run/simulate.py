"""Simulation: every node a coroutine in virtual time, over a flow-level network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan


def run(plan: Plan, directory: Path, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run all roles to their end in this process. Raises the first cause if one fails."""
    tell({"kind": "stage", "name": "starting nodes"})
    import torch

    from testbed.engine.roles import make_role
    from testbed.run.resume import checkpoint_files
    from testbed.simulation.run import simulate

    torch.set_num_threads(1)
    files = checkpoint_files(plan, directory, tell)
    exits = simulate(plan, partial(make_role, files=files), directory, tell)
    for end in exits.values():
        if end.error is not None:
            raise end.error
