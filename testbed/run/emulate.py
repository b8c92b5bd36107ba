"""Emulation: every node a real process in a Mininet host, behind shaped links. Runs inside the sandbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan
from testbed.results.events import EventLog
from testbed.run.recovery import Attempts, AttemptStart

Tell = Callable[[dict[str, Any]], None]


def run(plan: Plan, directory: Path, tell: Tell) -> None:
    """Network up, links measured, nodes in their hosts, traces from training's start. Raises the first cause."""
    from testbed.run.roles import require_machine

    require_machine(plan)
    preparation = threading.Thread(target=_prepare, args=[plan])  # 3 s that the network's bring-up can hide
    preparation.start()
    from emulation.network import Emulation
    from emulation.probe import probe

    capabilities = probe()
    capabilities.require_emulation()
    tell({"kind": "capabilities", "delay_method": capabilities.delay_method(), **capabilities.to_dict()})
    log = EventLog(directory / "events", "network")
    begin_s = time.monotonic()

    def record(kind: str, **fields: Any) -> None:
        log.write(kind, time.monotonic() - begin_s, **fields)
        if kind == "warning":
            tell({"kind": kind, **fields})

    try:
        tell({"kind": "stage", "name": "bringing the network up"})
        with Emulation(plan, capabilities, record, directory / "events") as network:
            tell({"kind": "stage", "name": "measuring the links"})
            network.measure()
            preparation.join()
            tell({"kind": "stage", "name": "starting nodes"})
            _train(plan, directory, network, tell)
    finally:
        preparation.join()
        log.close()


def _prepare(plan: Plan) -> None:
    import testbed.engine.roles
    import testbed.realtime.fleet  # noqa: F401
    from testbed.engine.learner import warm_up

    warm_up(plan)


def _train(plan: Plan, directory: Path, network: Any, tell: Tell) -> None:
    epoch_ns = time.monotonic_ns()
    network.start_monitor(epoch_ns / 1e9)
    replaying = False

    def on_progress(line: dict[str, Any]) -> None:
        nonlocal replaying
        if line["kind"] == "train" and not replaying:
            network.start_replay(epoch_ns / 1e9, epoch_ns / 1e9 + line["t"])
            replaying = True
        elif line["kind"] == "status":
            network.check_helpers()
        tell(line)

    try:
        with Attempts(plan, directory, tell) as attempts:
            attempts.run(
                lambda begin_s: _attempt(
                    plan, directory, network, attempts, AttemptStart(begin_s, epoch_ns), on_progress
                )
            )
    finally:
        network.finish()


def _attempt(plan: Plan, directory: Path, network: Any, attempts: Attempts, begin: AttemptStart, tell: Tell) -> None:
    from testbed.realtime.fleet import Fleet, Launch
    from testbed.run.resume import checkpoint_files
    from testbed.run.roles import role_maker

    begin.wait()
    launch = Launch(
        make_role=role_maker(plan, checkpoint_files(plan, directory, tell)),
        event_directory=directory / "events", enter=lambda node: network.enter(node.name), epoch_ns=begin.epoch_ns,
        due=attempts.clock, on_fault=attempts.on_fault,
    )  # fmt: skip
    try:
        Fleet(plan, launch).run(tell)
    finally:
        attempts.now_s = begin.now_s()
