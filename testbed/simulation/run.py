"""Simulates Plans in virtual time: the nodes of one or several jobs on one clock and one network."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simpy.core import EmptySchedule

from testbed.errors import Interrupted
from testbed.garbage import relaxed_garbage_collection
from testbed.plan.jobs import Job, plan_of_network
from testbed.plan.model import NetworkPlan, NodePlan, Plan
from testbed.plan.packets import cure_of_flows, packets_of
from testbed.results.events import DOUBT, flushed
from testbed.results.progress import Progress
from testbed.simulation.clock import Clock
from testbed.simulation.connections import SimulatedNetwork
from testbed.simulation.job import FoldedJob, JobRun, RoleMaker, SimulatedJob, SimulatedNodeExit, SimulationOptions
from testbed.simulation.link_monitor import LinkLog
from testbed.simulation.paths import PathTable
from testbed.simulation.step_threads import StepThreads

__all__ = ["Exits", "JobRun", "Simulation", "SimulationOptions", "simulate", "simulate_jobs"]

_BATCH_EVENTS = 64  # between looks at the wall clock
_REPORT_INTERVAL_S = 0.2  # wall time

Exits = dict[str, SimulatedNodeExit]


def simulate(
    plan: Plan,
    make_role: RoleMaker,
    run_directory: Path,
    on_progress: Progress,
    options: SimulationOptions | None = None,
    threads: int = 1,
) -> Exits:
    """Run every node of ``plan`` in virtual time. Return how each ended, by name. See ``simulate_jobs``."""
    alone = JobRun(
        job=Job(plan=plan),
        make_role=make_role,
        directory=run_directory,
        on_progress=on_progress,
        options=options or SimulationOptions(),
    )
    return simulate_jobs([alone], plan.network, threads)[0]


def simulate_jobs(runs: Sequence[JobRun], network: NetworkPlan, threads: int = 1) -> list[Exits]:
    """Run every node of all jobs on one network in virtual time. Return for each job how its nodes ended, by name.

    threads  number of threads that compute training steps beside the clock; below 2: steps are computed as they begin

    Event logs go to ``<directory>/events`` of each job. A job ends when all its roles have ended, or when one has
    failed. All jobs end when no node can advance any more, or on Ctrl-C; the errors of nodes that still ran say so.
    Equal Plans give equal virtual times, bit for bit. An exception of a role is not raised; it is the node's ``error``.
    """
    simulation = Simulation(runs, network, threads)
    try:
        with ExitStack() as logs:
            for job in simulation.jobs:
                logs.enter_context(flushed(job.events))
            logs.enter_context(relaxed_garbage_collection())
            simulation.start()
            gc.freeze()  # nodes live until the end of the run, so the collector can ignore them
            simulation.run()
    except KeyboardInterrupt as error:
        stopped = Interrupted("stopped by Ctrl-C; the results so far are kept")
        simulation.stop(stopped.with_traceback(error.__traceback__))  # the traceback shows whose code was running
    finally:
        simulation.close()
    return [job.exits for job in simulation.jobs]


class Simulation:
    """One run of jobs that share a network. Implements ``testbed.simulation.job.Jobs``."""

    def __init__(self, runs: Sequence[JobRun], network: NetworkPlan, threads: int = 1) -> None:
        first = runs[0]
        self._plans = [run.job.plan for run in runs]
        folded = [FoldedJob(run) for run in runs]
        plan = plan_of_network([replace(each.run.job, plan=each.plan) for each in folded], network)
        members: dict[str, tuple[NodePlan, ...]] = {
            each.run.job.host(name): group for each in folded for name, group in each.members.items()
        }
        self.clock = Clock(first.options.begin_s)
        paths = PathTable(plan, first.tcp.goodput, folded[0].compute.message_bytes_per_s)
        self._links = LinkLog()
        self.network = SimulatedNetwork(
            plan, self.clock, first.tcp, paths, first.options.compiled, members, self._links
        )
        if self.network.packets is not None:
            self.network.packets.engine.expect(sum(map(packets_of, self._plans)))
        self.threads = StepThreads(threads) if threads > 1 else None
        self.jobs = [SimulatedJob(each, self) for each in folded]
        self.network.engine.warn = self._warn
        self._start_s = self._reported_s = time.perf_counter()
        self._reported_now = 0.0
        self._interrupt: KeyboardInterrupt | None = None

    def start(self) -> None:
        """Begin the jobs that are due now, and schedule the others."""
        for job in self.jobs:
            if job.start_s > self.clock.now:
                self.clock.at(job.start_s, partial(self._begin_late, job))
            else:
                self._begin(job)
        self.network.monitor.start_sampling(self.jobs[0].resumed_s)
        for job in self.jobs:
            job.resume_training()

    def _begin(self, job: SimulatedJob) -> None:
        self._links.join(job.log)
        job.begin()

    def _begin_late(self, job: SimulatedJob, _: Any) -> None:
        job.tell_start()
        self._begin(job)
        self.network.monitor.sample()  # the new job's log counts from this sample

    def run(self) -> None:
        """Let time pass until all nodes have ended, the last running job has failed, or no node can advance."""
        clock = self.clock
        clock.on_background = self._look_for_stall
        while not clock.stopped:
            try:
                clock.advance(_BATCH_EVENTS)
            except EmptySchedule:
                self._look_for_stall()
                if not clock.stopped:
                    self._end_waiting()
            for job in self.jobs:
                job.events.encode()
            self._report()
        if self._interrupt is not None:
            raise self._interrupt
        for job in self.jobs:
            if job.cause is not None:
                job.abandon()

    def stop(self, error: BaseException) -> None:
        """End all nodes that still run with ``error``."""
        for job in self.jobs:
            job.stop(error)

    def close(self) -> None:
        """Write the last samples and warnings, and flush all logs."""
        if self.threads is not None:
            self.threads.close()
        cure = cure_of_flows(self._plans)
        for doubt in self.network.doubts(cure):
            self._warn(doubt, cause=DOUBT)
        self.network.monitor.sample()
        for job in self.jobs:
            job.events.close()

    # ---- called by jobs: see ``testbed.simulation.job.Jobs`` ------------------------------------------------------

    def failed(self, job: SimulatedJob, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._interrupt = error
        if self._interrupt is not None or not self._others_run(job):
            self.clock.stopped = True
        else:
            self.clock.soon(lambda _: job.leave_network())

    def ended(self, job: SimulatedJob) -> None:
        if self._others_run(job):  # the ended job's log takes a last sample, and nothing about the other jobs
            self.network.monitor.sample()
            self._links.leave(job.log)
            job.tell_end()
        else:
            self.clock.stopped = True

    def _others_run(self, job: SimulatedJob) -> bool:
        return any(other is not job and not other.has_ended for other in self.jobs)

    # ---- the run as a whole -------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Let jobs report, if the last report was at least ``_REPORT_INTERVAL_S`` ago."""
        wall_s = time.perf_counter()
        now = self.clock.now
        if wall_s - self._reported_s < _REPORT_INTERVAL_S:
            return
        rate = (now - self._reported_now) / (wall_s - self._reported_s)
        for job in self.jobs:
            job.report(wall_s - self._start_s, rate)
        self._reported_s = wall_s
        self._reported_now = now

    def _look_for_stall(self) -> None:
        """Keep the wait graph if only a deadline can let a node advance now. If there is no deadline, end all nodes."""
        clock = self.clock
        if not clock.only_background or self.network.active:
            if clock.stalled:
                clock.stalled = False
                for job in self.jobs:
                    job.advanced()
                self.network.monitor.start_sampling()
            return
        if not clock.stalled:
            clock.stalled = True
            for job in self.jobs:
                job.stalled()
        if all(job.waits_for_ever for job in self.jobs):  # otherwise a deadline or fault may let a node advance
            self._end_waiting()

    def _end_waiting(self) -> None:
        """End all nodes, as they wait for events that can no longer happen."""
        self.clock.stopped = True
        for job in self.jobs:
            job.end_waiting()

    def _warn(self, message: str, **about: str) -> None:
        for job in self.jobs:
            job.warn(message, **about)
