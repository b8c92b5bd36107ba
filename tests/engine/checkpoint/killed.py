"""Runs in virtual time that are killed at an instant and resumed, and what must then be as in a run that was not."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch

from testbed.engine.roles import make_role
from testbed.execution.resume import checkpoint_files
from testbed.plan.fault_clock import FaultClock
from testbed.plan.jobs import Job
from testbed.plan.model import Plan
from testbed.results.events import read
from testbed.simulation.run import JobRun, Simulation, SimulationOptions

Event = dict[str, Any]


class _Killed(BaseException):
    """The process is gone."""


def run_until(plan: Plan, directory: Path, kill_s: float | None = None) -> list[Event]:
    """Simulate from the newest checkpoint in ``directory``, if there is one, to the end or until ``kill_s``.

    Return the events of all nodes, by time.
    """
    torch.set_num_threads(1)
    shutil.rmtree(directory / "events", ignore_errors=True)
    files, due = checkpoint_files(plan, directory, lambda line: None), FaultClock(plan)
    if files is not None and files.resumed is not None:
        due.resumed(files.resumed.round, files.resumed.instant, files.resumed.members.missing)
    job = JobRun(
        job=Job(plan=plan),
        make_role=partial(make_role, files=files),
        directory=directory,
        on_progress=lambda line: None,
        options=SimulationOptions(due=due),
    )
    simulation = Simulation([job], plan.network, threads=1)
    simulation.start()
    if kill_s is not None:
        simulation.clock.at_background(kill_s, _die)
    try:
        simulation.run()
        errors = {name: end.error for name, end in simulation.jobs[0].exits.items() if end.error is not None}
        assert not errors, errors
    except _Killed:
        pass
    finally:
        simulation.close()
    return sorted(read(directory / "events"), key=lambda event: float(event["t"]))


def _die(_: Any) -> None:
    raise _Killed


def resumed_at(directory: Path, plan: Plan) -> float:
    """Return the instant of the newest checkpoint; 0 if there is none."""
    files = checkpoint_files(plan, directory, lambda line: None)
    return files.resumed.instant.at_s if files is not None and files.resumed is not None else 0.0


KINDS = ("round", "update", "evaluate", "blocks", "threshold", "consensus", "final")


def story(events: list[Event], since_s: float) -> list[Event]:
    """Return what a run does from an instant on: every round, update and score, with its time, and all final values."""
    return [event for event in events if event["kind"] in KINDS and event["t"] >= since_s]
