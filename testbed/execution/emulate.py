"""Emulation: every node is a real process in a Mininet host, behind shaped links. Runs inside the sandbox."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.execution import early_imports
from testbed.execution.compiler import leave_out_compiler, may_compile
from testbed.execution.deployment import Deployment, Ground, share_network_events
from testbed.execution.local import run_nodes, shared_cores
from testbed.execution.programs.launch import Hosts
from testbed.execution.programs.supervisor import run_programs
from testbed.execution.resume import FOLDER
from testbed.execution.together import run_together
from testbed.plan.model import Plan
from testbed.processes.threads import EndingThreads
from testbed.realtime.hold import Hold
from testbed.results.events import EventLog
from testbed.results.progress import Progress
from testbed.results.summary import by_site

if TYPE_CHECKING:
    from emulation.probe import Capabilities

MASTER_PORT = 29_500  # torchrun's


def run_jobs(ground: Ground) -> list[BaseException | None]:
    """Bring the network up, measure it, run the nodes of all jobs in it, and replay traces from the start of training.

    Return for each job the first cause of its failure, or None. Raise ``NetworkMismatch`` if a link differs much from
    the plan.
    """
    from testbed.execution.prediction import is_predictable, record_predicted

    epoch_ns = time.monotonic_ns()
    deployments = tuple(each.timed(epoch_ns) for each in ground.deployments)
    ground = replace(ground, deployments=deployments)
    plan = ground.plan
    resumed = (ground.directory / FOLDER).is_dir()  # an earlier run has done the first rounds
    preparation = EndingThreads(1)
    prepared = preparation.submit(prepare, ground)  # takes a second or two, while the network comes up
    from emulation.network import Emulation

    capabilities = _capabilities(ground)
    capabilities.require_emulation()
    ground.report({"kind": "capabilities", "delay_method": capabilities.delay_method(), **capabilities.to_dict()})
    log = EventLog(ground.directory / "events", "network")

    def record(kind: str, **fields: Any) -> None:
        log.write(kind, (time.monotonic_ns() - epoch_ns) / 1e9, **fields)
        if kind == "warning":
            ground.report({"kind": kind, **fields})

    try:
        ground.report({"kind": "stage", "name": "bringing the network up"})
        # an exact run has no live page, and each sample would cost virtual time
        seen_from_s = None if plan.exact is not None else epoch_ns / 1e9
        with Emulation(plan, capabilities, record, ground.directory / "events", seen_from_s) as network:
            ground = prepared.result()  # before links are measured, as the thread may hold the interpreter and delay it
            preparation.shutdown()  # so that no thread is left when nodes are forked
            errors = _train(ground, network, epoch_ns, log)
        if is_predictable(plan) and len(deployments) == 1 and errors == [None] and not resumed:
            ground.report({"kind": "stage", "name": "simulating the first rounds"})
            record_predicted(ground.only.plan, record)
    finally:
        preparation.shutdown()
        log.close()
    share_network_events(ground)
    return errors


def _capabilities(ground: Ground) -> Capabilities:
    """Return this machine's capabilities: from the manifest, if the launcher has probed them, else by a new probe."""
    from emulation.probe import Capabilities, probe

    manifest = ground.deployments[0].directory / "manifest.json"
    told = json.loads(manifest.read_bytes())["capabilities"] if manifest.exists() else {}
    return Capabilities.of(told) or probe()


def prepare(ground: Ground) -> Ground:
    """Import modules and read data for all nodes before the first fork; return the jobs with GPUs assigned to nodes."""
    early_imports.finish()
    if ground.plan.program is None and not any(may_compile(each.plan) for each in ground.deployments):
        leave_out_compiler()
    from testbed.execution.roles import fitted_together

    plans = fitted_together([each.job for each in ground.deployments])
    for plan in plans:
        _warm_up(plan)
    placed = (each.with_plan(plan) for each, plan in zip(ground.deployments, plans, strict=True))
    return replace(ground, deployments=tuple(placed))


def _warm_up(plan: Plan) -> None:
    if plan.program is not None:
        return
    import testbed.engine.roles
    import testbed.realtime.fleet  # noqa: F401
    from testbed.engine.learner import warm_up

    warm_up(plan)


def _train(ground: Ground, network: Any, epoch_ns: int, log: EventLog) -> list[BaseException | None]:
    """Measure the network and run the nodes in it. In an ordinary run, nodes start and connect during measurements."""
    links = _Links(network, epoch_ns)
    deployments = [replace(each, report=links.following(each.report)) for each in ground.deployments]
    plan = ground.plan
    # Measure first if several jobs have their own start times, a program would start to send at once, or the run is
    # exact: in virtual time an overlap saves nothing.
    is_first = plan.program is not None or plan.exact is not None or len(deployments) > 1

    def measure() -> None:
        network.measure()
        log.flush()  # for users who watch the run
        network.helpers.start_monitor(epoch_ns / 1e9)

    hold = None if is_first else Hold(measure)
    try:
        if is_first:
            ground.report({"kind": "stage", "name": "measuring the links"})
            measure()
        if plan.program is not None:
            ground.report({"kind": "stage", "name": "starting the program"})
            only = deployments[0]
            run_programs(plan, only.directory, only.report, epoch_ns, _hosts(plan, network))
            return [None]
        ground.report_start()
        realtime = network.capabilities.realtime and plan.exact is None  # in virtual time no node waits for a core

        def run(deployment: Deployment) -> None:
            host = deployment.job.host
            run_nodes(deployment, epoch_ns, cores, lambda node: network.enter(host(node.name)), realtime, hold)

        with shared_cores(deployments) as cores:
            return run_together(deployments, run)
    finally:
        network.helpers.finish()
        if hold is not None:
            hold.close()


class _Links:
    """Makes links follow the plan from the first start of training on, and checks that the helpers still run."""

    def __init__(self, network: Any, epoch_ns: int) -> None:
        self._network = network
        self._epoch_ns = epoch_ns
        self._follow = False

    def following(self, report: Progress) -> Progress:
        """Return a report that also reads a job's events: its start of training, and its status lines."""

        def take(line: dict[str, Any]) -> None:
            if line["kind"] == "train" and not self._follow:
                start_s = self._epoch_ns / 1e9 + line["t"]
                self._network.helpers.begin(self._epoch_ns / 1e9, start_s, line.get("trained_s", 0.0))
                self._follow = True
            elif line["kind"] == "status":
                self._network.helpers.check()
            report(line)

        return take


def _hosts(plan: Plan, network: Any) -> Hosts:
    """Return the emulated hosts. Each is the network namespace of a node, with a name that all other hosts know."""
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
