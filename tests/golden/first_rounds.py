"""What a scenario does in its first rounds, in virtual time."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed import shipped
from testbed.errors import ScenarioError
from testbed.scenario import Scenario
from testbed.scenario.load import load
from testbed.scenario.sweep import read_techniques
from tests.end_to_end.runs import Finished, run_jobs, run_scenario
from tests.golden.values import NOT_SIMULATED

ROUNDS = 5
# Scenarios about faults run until these have happened.
LONGER = {
    "faults/bad-weather": 40,
    "faults/data-center-lost": 70,
    "faults/replica": 30,
    "faults/restart": 60,
    "verdicts/gossip": 18,
}
TECHNIQUES = "large/techniques"
OF_JOB = ": "  # between the name of a scenario and that of one of its jobs
_SHORT_JOB = (f"training.rounds={ROUNDS}", f"training.evaluate_every={ROUNDS}", "start=1 s")
_MOST_LINKS = 12  # that are listed one by one


def jobs_of(file: Path) -> list[str]:
    """Return the names of the jobs of a shipped scenario; none of one that is no file of several."""
    jobs = file.read_text(encoding="utf-8").partition("\njobs:\n")[2]
    return re.findall(r"^  ([a-z][a-z0-9-]*):", jobs, re.MULTILINE)


def cases() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return what golden values are of: the scenario, and the settings that replace its own, by name.

    These are the shipped scenarios, each job of those that have several, and the quickstart with each of the techniques
    that ``TECHNIQUES`` lists.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, path in shipped.names().items():
        jobs = jobs_of(path)
        for case in [f"{name}{OF_JOB}{job}" for job in jobs] or [name]:
            found[case] = name, ()
    for name, settings in read_techniques(shipped.FOLDER / f"{TECHNIQUES}.yaml").items():
        found[f"quickstart with {name}"] = "quickstart", tuple(f"{path}={value}" for path, value in settings.items())
    return found


def measure(name: str) -> dict[str, Any]:
    """Return the golden values of one case, or why it cannot be simulated.

    status      how the run ended
    parameters  beginning of a SHA-256 of all that nodes hold at the end; null if they hold no numbers
    rounds      that workers completed, of all workers together
    rounds_s    when the last worker completed each of the first rounds (s)
    end_s       when the last node ended (s); events have both in microseconds
    bytes       that each link of the WAN carried; of many links, their sum and the beginning of a SHA-256 of all
    """
    shipped_name, settings = cases()[name]
    path = shipped.path_of(shipped_name)
    if OF_JOB in name:
        return _values(_job(path, name.partition(OF_JOB)[2]))
    try:
        scenario = load(path, settings, on="simulate")
        short = first_rounds(scenario, LONGER.get(name, ROUNDS))
        with tempfile.TemporaryDirectory() as folder:
            run = run_scenario(Path(folder) / "run", "simulate", *settings, *short, scenario=path, network=None)
    except ScenarioError as error:
        return {NOT_SIMULATED: error.problems[0].replace(f"{shipped.FOLDER.parent}/", "")}
    return _values(run)


def _job(path: Path, job: str) -> Finished:
    """Run all jobs of a file, and return one of them."""
    short = [f"jobs.{name}.{setting}" for name in jobs_of(path) for setting in _SHORT_JOB]
    with tempfile.TemporaryDirectory() as folder:
        return run_jobs(Path(folder) / "run", "simulate", *short, scenario=path)[job]


def _values(run: Finished) -> dict[str, Any]:
    return {
        "status": " ".join(filter(None, (run.outcome.status, run.outcome.message))),
        "parameters": parameters(run),
        "rounds": len(run.of_kind("round")),
        "rounds_s": rounds_s(run),
        "end_s": max((event["t"] for event in run.of_kind("final")), default=0.0),
        "bytes": carried_bytes(run),
    }


def first_rounds(scenario: Scenario, rounds: int) -> list[str]:
    """Return the settings that end a scenario after ``rounds`` rounds at most, with one evaluation at the end."""
    rounds = min(rounds, scenario.training.rounds)
    settings = [f"training.rounds={rounds}"]
    if scenario.workload is None:  # else a script decides when it evaluates, and when it ends
        settings += [f"training.evaluate_every={rounds}", "training.target_accuracy=null", "training.target_loss=null"]
    return settings


def parameters(run: Finished) -> str | None:
    held = {event["node"]: event.get("parameters_sha256") for event in run.of_kind("final")}
    lines = [f"{node} {sha256}" for node, sha256 in sorted(held.items()) if sha256]
    return _digest(lines) if lines else None


def rounds_s(run: Finished) -> list[float]:
    completed: dict[int, float] = {}
    for event in run.of_kind("round"):  # a round that is made again counts when it is completed again
        completed[event["round"]] = max(event["t"], completed.get(event["round"], 0.0))
    return [completed[round_] for round_ in sorted(completed)[:ROUNDS]]


def carried_bytes(run: Finished) -> dict[str, Any]:
    carried = {event["link"]: event["bytes"] for event in run.of_kind("link")}
    if len(carried) <= _MOST_LINKS:
        return dict(sorted(carried.items()))
    lines = (f"{link} {count}" for link, count in sorted(carried.items()))
    return {"links": len(carried), "sum": sum(carried.values()), "sha256": _digest(lines)}


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
