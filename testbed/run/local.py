"""Loopback: every node a real process, real TCP on 127.0.0.1, no WAN."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan
from testbed.run.recovery import Attempts, AttemptStart

Tell = Callable[[dict[str, Any]], None]


def run(plan: Plan, directory: Path, tell: Tell) -> None:
    """Run all nodes to their end. Raises the first cause if one fails."""
    tell({"kind": "stage", "name": "starting nodes"})
    from testbed.engine.learner import warm_up
    from testbed.run.roles import require_machine

    require_machine(plan)
    warm_up(plan)
    epoch_ns = time.monotonic_ns()
    with Attempts(plan, directory, tell) as attempts:
        attempts.run(lambda begin_s: _attempt(plan, directory, tell, attempts, AttemptStart(begin_s, epoch_ns)))


def _attempt(plan: Plan, directory: Path, tell: Tell, attempts: Attempts, begin: AttemptStart) -> None:
    from testbed.realtime.fleet import Fleet, Launch
    from testbed.run.resume import checkpoint_files
    from testbed.run.roles import role_maker

    begin.wait()
    make_role = role_maker(plan, checkpoint_files(plan, directory, tell))
    launch = Launch(
        make_role=make_role, event_directory=directory / "events", epoch_ns=begin.epoch_ns,
        due=attempts.clock, on_fault=attempts.on_fault,
    )  # fmt: skip
    try:
        Fleet(plan, launch).run(tell)
    finally:
        attempts.now_s = begin.now_s()
