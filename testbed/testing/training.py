"""Short trainings with the technique, in the virtual world and in real processes on loopback.

Four workers in three data centres train a small perceptron on digits. They must make the declared local steps. A second
virtual run must give the same parameters to the bit, and so must real processes unless the order of arrival matters.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from testbed.execution import host, session
from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.policy.events import Contribution
from testbed.policy.overlay.base import ScheduledOverlay
from testbed.results import events
from testbed.scenario.load import loads
from testbed.testing.requirement import require, requirement
from testbed.testing.subject import AXES, Subject
from testbed.training.options.declarations import RECORDS, TEXT

ROUNDS = 8  # at least
_WORKERS = 4
_SCENARIO = """
version: 1
name: check
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: hub, central: true, workers: 1}
    - {name: east, workers: 2}
    - {name: west, workers: 1}
  links:
    - {between: [hub, east], rate: 100 Mbit/s, delay: 2 ms}
    - {between: [hub, west], rate: 100 Mbit/s, delay: 2 ms}
    - {between: [east, west], rate: 100 Mbit/s, delay: 2 ms}
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 16}
device: {pace: paced, step_time: 2 ms}
optimizer: {kind: sgd, learning_rate: 0.05}
"""
_TEXT = "the quick brown fox jumps over the lazy dog; " * 40
_DATA = {TEXT: {"kind": "text", "file": "text.txt", "context": 16}, RECORDS: {"kind": "clicks", "categories": 100}}
_MODELS = {
    TEXT: {"kind": "transformer", "layers": 1, "heads": 2, "head_width": 4},
    RECORDS: {"kind": "recommender", "rows": 500, "width": 4, "hidden": 8},
}


def _settings(subject: Subject) -> dict[str, Any]:
    """Return the settings with which the scenario uses the technique, by path."""
    entry = subject.entry
    axis = subject.axis_name
    chosen = {"kind": subject.kind, **subject.values}
    settings: dict[str, Any] = {f"training.{axis}" if axis in ("model", "data", "split") else axis: chosen}
    if axis == "sync":
        settings["sync"] = _tiers(entry, chosen)
        if entry.contribution is not Contribution.GRADIENT:
            settings["optimizer.at"] = "worker"
    elif axis == "overlay" and "merge" in {option.name for option in fields(subject.options)}:
        settings["overlay"] = {"merge": "exact", **chosen}
    elif axis == "shard":
        settings["topology.data_centers[hub].global_servers"] = 2
    elif axis == "model":
        settings["training.data"] = _DATA.get(entry.takes, "digits")
    elif axis in ("schedule", "placement"):
        settings = {"paradigm": {"kind": "pipeline", "stages": 2, "micro_batches": 4, axis: chosen}}
        settings["training.model"] = {"kind": "mlp", "hidden": 8, "layers": 3}
    elif axis == "data" and entry.gives in _MODELS:
        settings["training.model"] = _MODELS[entry.gives]
    return settings


def _tiers(entry: Any, chosen: dict[str, Any]) -> dict[str, Any]:
    if entry.tiers == (1,):
        return {"tier1": chosen, "tier2": "fsa"}
    if entry.tiers == (2,) and not entry.partner:
        return {"tier1": "fsa", "tier2": chosen}
    return chosen


def _rounds(subject: Subject) -> int:
    """Return a number of rounds, the last of which crosses the WAN, so that all nodes end with one model."""
    every = int(subject.entry.lan_rounds(subject.options)) if subject.axis_name == "sync" else 1
    return every * -(-ROUNDS // every)


@cache
def _trained(axis: str, kind: str, values: str, on: str, number: int) -> dict[str, str]:
    subject = Subject(AXES[axis], kind, json.loads(values))
    rounds = _rounds(subject)
    changes = {**_settings(subject), "training.rounds": rounds, "training.evaluate_every": rounds}
    settings = [f"{path}={json.dumps(value)}" for path, value in changes.items()]
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as name:
        folder = Path(name)
        (folder / "text.txt").write_text(_TEXT, encoding="utf-8")
        plan = build_plan(loads(_SCENARIO, "the check's scenario", settings, folder, on=on), on)
        run = folder / "run"
        run.mkdir()
        (run / "plan.json").write_bytes(to_json(plan))
        # in one process per node, or in this process
        execute = session.run if plan.facilities.has_processes else host.attempt
        outcome = execute(plan, run, lambda event: None)
        require(not outcome.exit_code, f"the training on {on} failed: {outcome.message}", "see the message")
        found = list(events.read(run / "events"))
    steps: dict[str, list[tuple[int, int]]] = {}
    for event in found:
        if event["kind"] == "round":
            steps.setdefault(event["node"], []).append((event["round"], event["steps"]))
    _require_declared_steps(subject, rounds, steps)
    return {event["node"]: event["parameters_sha256"] for event in found if "parameters_sha256" in event}


def _require_declared_steps(subject: Subject, rounds: int, steps: dict[str, list[tuple[int, int]]]) -> None:
    """Require that every worker made all rounds, with the declared local steps unless replies assign steps.

    Workers that do not wait for each other may make different numbers of rounds.
    """
    is_sync = subject.axis_name == "sync"
    shares = is_sync and not subject.entry.waits
    assigned = is_sync and subject.entry.assigns_steps
    cure = "assign steps in replies only with assigns_steps = True; declare the others in local_steps"
    require(len(steps) == _WORKERS, f"rounds of {sorted(steps)}", "see `testbed run` with this technique")
    for worker, made in steps.items():
        numbers = range(len(made) if shares else rounds)
        declared = [subject.entry.local_steps(subject.options, number) if is_sync else 1 for number in numbers]
        expected = [(number, dict(made).get(number) if assigned else each) for number, each in enumerate(declared)]
        require(made == expected, f"{worker} made (round, steps) {made}, and declared are {expected}", cure)


def trained(subject: Subject, on: str, number: int = 0) -> dict[str, str]:
    """Train, and return the hash of the parameters by node. Results are cached; a new ``number`` trains once more."""
    return _trained(subject.axis_name, subject.kind, json.dumps(dict(subject.values)), on, number)


def order_of_arrival_matters(subject: Subject) -> bool:
    """Return whether runs in real time may differ in their bits."""
    entry = subject.entry
    options = subject.options
    match subject.axis_name:
        case "sync":  # pushes are applied as they arrive, or local steps depend on measured times
            return not entry.waits or bool(entry.assigns_steps)
        case "order":  # best-effort messages may be lost
            return bool(entry.best_effort and not entry.repairs_losses(options))
        case "overlay":  # the rounding of sums depends on trees, which depend on measured rates
            measured = entry.adapts or issubclass(entry, ScheduledOverlay)
            return bool(measured and subject.values.get("merge") == "sum")
    return False


def _require_equal(first: dict[str, str], second: dict[str, str]) -> None:
    different = sorted(node for node in first if first[node] != second.get(node))
    cure = "draw from seeds only; use no clock, no hash() of text, no set in iteration order, no outside state"
    require(first and not different, f"parameters of {', '.join(different) or 'no node'} differ", cure)


@requirement("see `testbed run` with this technique")
def trainings_repeat_to_the_bit(subject: Subject) -> None:
    """Two trainings in the virtual world make the declared steps, and end with equal parameters."""
    _require_equal(trained(subject, "simulate"), trained(subject, "simulate", number=1))


@requirement("see `testbed run` with this technique")
def trainings_are_equal_in_both_worlds(subject: Subject) -> None:
    """A training in real processes makes the declared steps, with the same parameters unless arrival order matters."""
    real = trained(subject, "local")
    if not order_of_arrival_matters(subject):
        _require_equal(trained(subject, "simulate"), real)
