"""Loopback: every node a real process, real TCP on 127.0.0.1, no WAN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan


def run(plan: Plan, directory: Path, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run all nodes to their end. Raises the first cause if one fails."""
    tell({"kind": "stage", "name": "starting nodes"})
    from testbed.engine.learner import warm_up
    from testbed.realtime.fleet import Fleet, Launch
    from testbed.run.resume import checkpoint_files
    from testbed.run.roles import require_machine, role_maker

    require_machine(plan)
    make_role = role_maker(plan, checkpoint_files(plan, directory, tell))
    warm_up(plan)
    launch = Launch(make_role=make_role, event_directory=directory / "events")
    Fleet(plan, launch).run(tell)
