"""The jobs of a run as a back end executes them: each with its directory and its listener, and the shared network.

runs/NAME/                the run directory of the only job of an ordinary run
runs/NAME/jobs.json       the jobs of a run with several, and their network
runs/NAME/jobs/JOB/       the run directory of each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from testbed.execution.recovery import timed
from testbed.plan.jobs import Job, SharedNetwork, plan_of_network
from testbed.plan.model import NetworkPlan, Plan, from_json, to_json
from testbed.results import atomic, events
from testbed.results.events import EventLog
from testbed.results.job_index import FILE, NETWORK, folder
from testbed.results.progress import Progress

_ALONG = frozenset({"link", "replay"})  # kinds of events that are recorded as long as a network is up
STARTING = {"kind": "stage", "name": "starting nodes"}
_MARGIN_S = 0.5  # before and after a job, so that one sample on each side is kept


@dataclass(frozen=True, slots=True)
class Deployment:
    """One job: its Plan, the directory of its results, and the listener to its progress."""

    job: Job
    directory: Path
    report: Progress

    @property
    def plan(self) -> Plan:
        return self.job.plan

    def with_plan(self, plan: Plan) -> Deployment:
        """Return the deployment of the same job with another Plan, e.g. with the GPUs assigned to its nodes."""
        return replace(self, job=replace(self.job, plan=plan))

    def timed(self, epoch_ns: int) -> Deployment:
        """Return the deployment with a report that adds the present time to events without a time; see ``timed``."""
        return replace(self, report=timed(self.report, epoch_ns))


@dataclass(frozen=True, slots=True)
class Ground:
    """What a back end executes: the jobs of a run on their network.

    directory  directory of the whole run; for an only job, its run directory
    cores      number of cores that this process may use, if the back end computes here
    """

    deployments: tuple[Deployment, ...]
    network: NetworkPlan
    directory: Path
    cores: int = 1

    @property
    def plan(self) -> Plan:
        """The Plan from which a world makes the network."""
        return plan_of_network([each.job for each in self.deployments], self.network)

    @property
    def only(self) -> Deployment:
        """The job of a run that has one."""
        (deployment,) = self.deployments
        return deployment

    def report(self, event: dict[str, Any]) -> None:
        """Report an event about the network to all jobs."""
        for deployment in self.deployments:
            deployment.report(event)

    def report_start(self) -> None:
        """Report that nodes start to the jobs that start with the network. Others get this event at their own start."""
        for deployment in self.deployments:
            if not deployment.job.start_s:
                deployment.report(dict(STARTING))

    def take(self, event: dict[str, Any]) -> None:
        """Pass an event of the executing process on to the job that the event names, or to all jobs."""
        name = event.pop("job", None)
        for deployment in self.deployments:
            if name in (None, deployment.job.name):
                deployment.report(dict(event))


def alone(plan: Plan, directory: Path, report: Progress) -> Ground:
    """Return the ground of an ordinary run."""
    return Ground((Deployment(Job(plan=plan), directory, report),), plan.network, directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenJob:
    name: str
    start_s: float
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The content of ``jobs.json``."""

    schema_version: int
    scenario: str
    jobs: list[_WrittenJob]


def write_jobs(directory: Path, name: str, jobs: Sequence[Job], shared: SharedNetwork) -> None:
    """Write the list of jobs of the run ``name``, and their network. The directory of each job has its Plan."""
    entries = [_WrittenJob(name=job.name, start_s=job.start_s, prefix=job.prefix) for job in jobs]
    content = _Written(schema_version=1, scenario=name, jobs=entries)
    atomic.write_bytes(directory / NETWORK, to_json(plan_of_network(jobs, shared.network)))
    atomic.write_bytes(directory / FILE, msgspec.json.format(msgspec.json.encode(content), indent=2))


def read_ground(directory: Path, report: Progress) -> Ground:
    """Read the jobs of a run's directory. If there are several, each event of their progress names its ``job``."""
    if not (directory / FILE).is_file():
        return alone(_plan_in(directory), directory, report)
    written = msgspec.json.decode((directory / FILE).read_bytes(), type=_Written)
    deployments = []
    for each in written.jobs:
        place = folder(directory, each.name)
        job = Job(plan=_plan_in(place), name=each.name, start_s=each.start_s, prefix=each.prefix)
        deployments.append(Deployment(job, place, _tagged(report, each.name)))
    network = from_json((directory / NETWORK).read_bytes()).network
    return Ground(tuple(deployments), network, directory)


def _plan_in(directory: Path) -> Plan:
    return from_json((directory / "plan.json").read_bytes())


def _tagged(report: Progress, job: str) -> Progress:
    return lambda event: report({**event, "job": job})


def share_network_events(ground: Ground) -> None:
    """Copy the events of an emulated network to each job's own events; samples of links only from while it trained.

    An only job already has these events among its own.
    """
    for deployment in ground.deployments:
        own = deployment.directory / "events"
        if deployment.directory == ground.directory:
            continue
        times_s = [float(event["t"]) for event in events.read(own) if event["kind"] in ("train", "round", "final")]
        begin_s = min(times_s, default=0.0)
        end_s = max(times_s, default=0.0)
        logs: dict[str, EventLog] = {}
        for event in events.read(ground.directory / "events"):
            if event["kind"] not in _ALONG or begin_s - _MARGIN_S <= event["t"] <= end_s + _MARGIN_S:
                name = event["node"]
                logs[name] = logs.get(name) or EventLog(own, name)
                logs[name].append(event)
        for log in logs.values():
            log.close()
