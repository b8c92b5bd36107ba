"""Emulation: every node a real process in a Mininet host, behind shaped links. Runs inside the sandbox."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.execution import early_imports
from testbed.execution.compiler import leave_out_compiler, may_compile
from testbed.execution.local import run_nodes
from testbed.execution.programs.launch import Hosts
from testbed.execution.programs.supervisor import run_programs
from testbed.execution.recovery import timed
from testbed.execution.resume import FOLDER
from testbed.plan.model import Plan
from testbed.results.events import EventLog
from testbed.results.progress import Progress
from testbed.results.summary import by_site

MASTER_PORT = 29_500  # torchrun's


def run(plan: Plan, directory: Path, report: Progress) -> None:
    """Bring the network up, measure it, run the nodes in it, replay traces from the start of training.

    Raise the first cause if a node fails, ``NetworkMismatch`` if a link is far from the plan.
    """
    from testbed.execution.prediction import is_predictable, record_predicted

    epoch_ns = time.monotonic_ns()
    report = timed(report, epoch_ns)
    resumed = (directory / FOLDER).is_dir()  # an earlier run has done the first rounds
    preparation = ThreadPoolExecutor(1)
    prepared = preparation.submit(prepare, plan)  # takes a second or two, while the network comes up
    from emulation.network import Emulation
    from emulation.probe import probe

    capabilities = probe()
    capabilities.require_emulation()
    report({"kind": "capabilities", "delay_method": capabilities.delay_method(), **capabilities.to_dict()})
    log = EventLog(directory / "events", "network")

    def record(kind: str, **fields: Any) -> None:
        log.write(kind, (time.monotonic_ns() - epoch_ns) / 1e9, **fields)
        if kind == "warning":
            report({"kind": kind, **fields})

    try:
        report({"kind": "stage", "name": "bringing the network up"})
        with Emulation(plan, capabilities, record, directory / "events") as network:
            plan = prepared.result()  # measured beside it, links would be late whenever it holds the interpreter
            preparation.shutdown()  # no thread is left when nodes are forked
            report({"kind": "stage", "name": "measuring the links"})
            network.measure()
            report({"kind": "stage", "name": "starting nodes" if plan.program is None else "starting the program"})
            _train(plan, directory, network, report, epoch_ns)
        if is_predictable(plan) and not resumed:
            report({"kind": "stage", "name": "simulating the first rounds"})
            record_predicted(plan, record)
    finally:
        preparation.shutdown()
        log.close()


def prepare(plan: Plan) -> Plan:
    """Import and read what all nodes need, before the first fork; return the plan with GPUs given to its nodes."""
    early_imports.finish()
    from testbed.execution.roles import fitted

    plan = fitted(plan)
    if plan.program is not None:
        return plan
    if not may_compile(plan):
        leave_out_compiler()
    import testbed.engine.roles
    import testbed.realtime.fleet  # noqa: F401
    from testbed.engine.learner import warm_up

    warm_up(plan)
    return plan


def _train(plan: Plan, directory: Path, network: Any, report: Progress, epoch_ns: int) -> None:
    network.helpers.start_monitor(epoch_ns / 1e9)
    replaying = False

    def on_progress(line: dict[str, Any]) -> None:
        nonlocal replaying
        if line["kind"] == "train" and not replaying:
            start_s = epoch_ns / 1e9 + line["t"]
            trained_s = line.get("trained_s", 0.0)
            network.helpers.begin(epoch_ns / 1e9, start_s, trained_s)
            replaying = True
        elif line["kind"] == "status":
            network.helpers.check()
        report(line)

    try:
        if plan.program is not None:
            run_programs(plan, directory, on_progress, epoch_ns, _hosts(plan, network))
        else:
            realtime = network.capabilities.realtime and plan.exact is None  # in virtual time no node waits for a core
            run_nodes(plan, directory, on_progress, epoch_ns, lambda node: network.enter(node.name), realtime)
    finally:
        network.helpers.finish()


def _hosts(plan: Plan, network: Any) -> Hosts:
    """Return the emulated hosts: each its node's network namespace, with a name that all others know."""
    from emulation.hosts import INTERFACE, as_node, environment, host_name, write_hosts

    write_hosts(network)
    names = tuple(host_name(node.name) for node in plan.nodes)
    addresses = tuple(network.address(node.name) for node in plan.nodes)
    before = network.counters()

    def traffic() -> dict[str, dict[str, int]]:
        sent = {name: link.sent_bytes - before[name].sent_bytes for name, link in network.counters().items()}
        return by_site(sent, (site.name for site in plan.network.sites))

    return Hosts(
        names,
        addresses,
        INTERFACE,
        MASTER_PORT,
        environment(os.environ),
        network.exec,
        as_node,
        traffic,
        network.interface_bytes,
    )
