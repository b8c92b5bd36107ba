"""Loopback: every node a real process, real TCP on 127.0.0.1, no WAN. Emulated nodes are started in the same way."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.execution.programs.launch import Hosts
from testbed.execution.programs.supervisor import run_programs
from testbed.execution.recovery import Attempts, attempt_until_done, timed
from testbed.execution.scripts import failure_files
from testbed.plan.model import NodePlan, Plan
from testbed.processes.child import spawn
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from testbed.realtime.fleet import Fleet


def run(plan: Plan, directory: Path, report: Progress) -> None:
    """Run all nodes to their end. Raise the first cause if one fails."""
    epoch_ns = time.monotonic_ns()
    report = timed(report, epoch_ns)
    if plan.program is not None:
        report({"kind": "stage", "name": "starting the program"})
        return run_programs(plan, directory, report, epoch_ns, _hosts(plan))
    report({"kind": "stage", "name": "starting nodes"})
    from testbed.engine.learner import warm_up
    from testbed.execution.roles import fitted

    plan = fitted(plan)
    warm_up(plan)
    return run_nodes(plan, directory, report, epoch_ns)


def run_nodes(
    plan: Plan,
    directory: Path,
    report: Progress,
    epoch_ns: int,
    enter: Callable[[NodePlan], None] | None = None,
    realtime: bool = False,
) -> None:
    """Run all nodes to their end, and again where the plan says so. Raise the first cause if that does not help.

    report    gets the nodes' lines of progress
    epoch_ns  the run's start on CLOCK_MONOTONIC
    enter     enters a node's network namespace, in the node's own process; without it, nodes meet on loopback
    realtime  see ``Launch``
    """
    from testbed.execution.resume import checkpoint_files
    from testbed.execution.roles import role_maker
    from testbed.realtime.cores import exact_loop
    from testbed.realtime.fleet import Fleet, Launch
    from testbed.realtime.node_loop import node_loop

    failures = failure_files(plan, directory)

    def fleet(attempts: Attempts) -> Fleet:
        files = checkpoint_files(plan, directory, report)
        if files is not None and files.resumed is not None:
            members = files.resumed.members
            attempts.clock.goes_on(files.resumed.round, members.trained_s, members.missing)
        launch = Launch(
            make_role=role_maker(plan, files, failures),
            event_directory=directory / "events",
            enter=enter,
            epoch_ns=epoch_ns,
            due=attempts.clock,
            absent=attempts.clock.absent,
            on_fault=attempts.on_fault,
            failures=failures,
            new_loop=exact_loop if plan.exact is not None else node_loop,
            realtime=realtime,
        )
        return Fleet(plan, launch)

    attempt_until_done(plan, directory, report, epoch_ns, fleet)


def _hosts(plan: Plan) -> Hosts:
    """Return loopback as the host of all nodes, with a free port for them to meet at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    interfaces = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "FI_TCP_IFACE"), "lo")
    count = len(plan.nodes)
    return Hosts(
        ("localhost",) * count,
        ("127.0.0.1",) * count,
        "lo",
        port,
        interfaces,
        lambda node, command, **popen: spawn(command, **popen),
    )
