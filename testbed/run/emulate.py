"""Emulation: every node a real process in a Mininet host, behind shaped links. Runs inside the sandbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan
from testbed.results.events import EventLog

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
    tell({"kind": "capabilities", **capabilities.to_dict()})
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
    from testbed.realtime.fleet import Fleet, Launch
    from testbed.run.resume import checkpoint_files
    from testbed.run.roles import role_maker

    epoch_ns = time.monotonic_ns()
    network.start_monitor(epoch_ns / 1e9)

    def on_progress(line: dict[str, Any]) -> None:
        if line["kind"] == "train":
            network.start_replay(epoch_ns / 1e9, epoch_ns / 1e9 + line["t"])
        elif line["kind"] == "status":
            network.check_helpers()
        tell(line)

    launch = Launch(
        make_role=role_maker(plan, checkpoint_files(plan, directory, tell)),
        event_directory=directory / "events",
        enter=lambda node: network.enter(node.name),
        epoch_ns=epoch_ns,
    )
    try:
        Fleet(plan, launch).run(on_progress)
    finally:
        network.finish()
