"""Runs for the end-to-end tests: a Plan run to its end, and what its event logs say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.execution import host, session
from testbed.execution.deployment import read_ground, write_jobs
from testbed.plan.build import build_jobs, build_plan
from testbed.plan.model import Plan, to_json
from testbed.results.events import read
from testbed.results.job_index import folder
from testbed.scenario.jobs import load_jobs
from testbed.scenario.load import load

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


@dataclass(frozen=True)
class Finished:
    """One run that has ended."""

    plan: Plan
    outcome: session.SessionResult
    directory: Path
    events: list[dict[str, Any]]  # of all nodes, each with its "node"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def hashes(self, role: str) -> set[str]:
        """Parameter hashes of all nodes of one role."""
        return {event["parameters_sha256"] for event in self.of_kind("final") if event["role"] == role}


def run_scenario(
    directory: Path, back_end: str, *overrides: str, scenario: Path = QUICKSTART, network: str | None = "flows"
) -> Finished:
    """Run a scenario with overrides to its end.

    Simulations are over flows, which are quick; ``network=None``: over what the scenario says.
    An emulation needs a host process in namespaces of its own. The others run in this process, as in that of the host:
    its imports are warm, and a new process would spend three seconds on them.
    """
    if network is not None and back_end == "simulate":
        overrides = (f"simulation.network={network}", *overrides)
    plan = build_plan(load(scenario, overrides), back_end)
    directory.mkdir(parents=True)
    (directory / "plan.json").write_bytes(to_json(plan))
    execute = session.run if plan.facilities.shapes_links else host.attempt
    outcome = execute(plan, directory, lambda event: None)
    return Finished(plan, outcome, directory, read_events(directory))


def run_jobs(
    directory: Path, back_end: str, *overrides: str, scenario: Path | str, processes: bool = False
) -> dict[str, Finished]:
    """Run the jobs of a file to their ends. ``processes``: in a host process, where this one would do."""
    read_ = load_jobs(scenario, overrides, on=back_end, allow_code=True)
    jobs, shared = build_jobs(read_)
    for job in jobs:
        folder(directory, job.name).mkdir(parents=True)
        (folder(directory, job.name) / "plan.json").write_bytes(to_json(job.plan))
    write_jobs(directory, read_.name, jobs, shared)
    ground = read_ground(directory, lambda event: None)
    apart = processes or jobs[0].plan.facilities.shapes_links
    outcomes = (session.run_jobs if apart else host.attempt_jobs)(ground)
    found = {}
    for deployment, outcome in zip(ground.deployments, outcomes, strict=True):
        place = deployment.directory
        found[deployment.job.name] = Finished(deployment.plan, outcome, place, read_events(place))
    return found


def read_events(directory: Path) -> list[dict[str, Any]]:
    """All events of a run, in no particular order."""
    return list(read(directory / "events"))
