"""Loopback: every node a real process, real TCP on 127.0.0.1, no WAN."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from testbed.execution.processes import run_nodes, timed
from testbed.execution.programs.launch import Hosts
from testbed.execution.programs.supervisor import HostNetwork, run_programs
from testbed.plan.model import Plan
from testbed.results.progress import Progress


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


def _hosts(plan: Plan) -> HostNetwork:
    """Return loopback as the host of all nodes, with a free port for them to meet at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    interfaces = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "FI_TCP_IFACE"), "lo")
    count = len(plan.nodes)
    hosts = Hosts(("localhost",) * count, ("127.0.0.1",) * count, "lo", port, interfaces)
    return HostNetwork(hosts, lambda node, command, **popen: subprocess.Popen(command, **popen))
