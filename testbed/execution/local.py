"""Loopback: every node is a real process, with TCP on 127.0.0.1 and no WAN. Emulated nodes start in the same way."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from testbed.execution.deployment import Deployment, Ground
from testbed.execution.programs.launch import Hosts
from testbed.execution.programs.supervisor import run_programs
from testbed.execution.recovery import Attempts, attempt_until_done
from testbed.execution.scripts import failure_files
from testbed.execution.together import run_together
from testbed.plan.model import NodePlan, Plan
from testbed.processes.child import spawn

if TYPE_CHECKING:
    from testbed.realtime.fleet import Fleet
    from testbed.realtime.hold import Hold
    from testbed.realtime.processor import Tokens


def run_jobs(ground: Ground) -> list[BaseException | None]:
    """Run the nodes of all jobs to their end. Return the first cause of each job's failure, if it has failed."""
    epoch_ns = time.monotonic_ns()
    deployments = [each.timed(epoch_ns) for each in ground.deployments]
    if ground.plan.program is not None:
        only = deployments[0]
        only.report({"kind": "stage", "name": "starting the program"})
        run_programs(only.plan, only.directory, only.report, epoch_ns, _hosts(only.plan))
        return [None]
    replace(ground, deployments=tuple(deployments)).report_start()
    from testbed.engine.learner import warm_up
    from testbed.execution.roles import fitted_together

    plans = fitted_together([each.job for each in deployments])
    deployments = [each.with_plan(plan) for each, plan in zip(deployments, plans, strict=True)]
    for each in deployments:
        warm_up(each.plan)
    with shared_cores(deployments) as cores:
        return run_together(deployments, lambda each: run_nodes(each, epoch_ns, cores))


@contextmanager
def shared_cores(deployments: Sequence[Deployment]) -> Iterator[Mapping[str, Tokens]]:
    """Yield for each of several jobs its view of the tokens for cores, which the steps of all jobs share.

    For an only job, yield nothing: its steps take the tokens of its fleet.
    """
    if len(deployments) == 1:
        yield {}
        return
    from testbed.realtime.processor import Tokens

    tokens = Tokens.make(len(os.sched_getaffinity(0)), sum(len(each.plan.nodes) for each in deployments))
    first = accumulate((len(each.plan.nodes) for each in deployments), initial=0)
    try:
        yield {each.job.name: tokens.of(number) for each, number in zip(deployments, first, strict=False)}
    finally:
        tokens.close()


def run_nodes(
    deployment: Deployment,
    epoch_ns: int,
    cores: Mapping[str, Tokens],
    enter: Callable[[NodePlan], None] | None = None,
    realtime: bool = False,
    hold: Hold | None = None,
) -> None:
    """Run all nodes to their end, with the restarts of the plan. Raise the first cause if the last attempt fails.

    epoch_ns  the run's start on CLOCK_MONOTONIC
    cores     the tokens of each job; see ``shared_cores``
    enter     enters a node's network namespace, in the node's own process; without it, nodes meet on loopback
    realtime, hold  see ``Launch``
    """
    from testbed.execution.resume import checkpoint_files
    from testbed.execution.roles import role_maker
    from testbed.realtime.cores import exact_loop
    from testbed.realtime.fleet import Fleet, Launch
    from testbed.realtime.node_loop import node_loop

    plan = deployment.plan
    directory = deployment.directory
    report = deployment.report
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
            hold=hold,
            core_tokens=cores.get(deployment.job.name),
        )
        return Fleet(plan, launch)

    attempt_until_done(plan, directory, report, epoch_ns, fleet)


def _hosts(plan: Plan) -> Hosts:
    """Return loopback as the host of all nodes, with a free port for their rendezvous."""
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
