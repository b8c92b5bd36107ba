"""A short training with the technique, in the virtual world and in real processes on loopback.

Four workers in three data centres train a small perceptron on digits. Local steps have to be as declared, parameters
equal to the bit: in a second virtual run, and in real processes where the order of arrival decides nothing.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, fields
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


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run: hash of the parameters by node, and local steps by worker and round."""

    parameters: dict[str, str]
    steps: dict[str, list[tuple[int, int]]]


def _settings(subject: Subject) -> dict[str, Any]:
    """Return what the technique changes in the scenario, by key."""
    entry, axis = subject.entry, subject.axis_name
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
    """Return a number of rounds after which all nodes hold one model: the last one crosses the WAN."""
    every = int(subject.entry.lan_rounds(subject.options)) if subject.axis_name == "sync" else 1
    return every * -(-ROUNDS // every)


@cache
def _trained(axis: str, kind: str, values: str, back_end: str, number: int) -> Trained:
    subject = Subject(AXES[axis], kind, json.loads(values))
    rounds = {"training.rounds": _rounds(subject), "training.evaluate_every": _rounds(subject)}
    settings = [f"{path}={json.dumps(value)}" for path, value in {**_settings(subject), **rounds}.items()]
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as name:
        folder = Path(name)
        (folder / "text.txt").write_text(_TEXT, encoding="utf-8")
        plan = build_plan(loads(_SCENARIO, "the check's scenario", settings, folder, on=back_end), back_end)
        run = folder / "run"
        run.mkdir()
        (run / "plan.json").write_bytes(to_json(plan))
        execute = host.attempt if back_end == "simulate" else session.run  # in this process, or in one per node
        outcome = execute(plan, run, lambda event: None)
        require(not outcome.exit_code, f"the training on {back_end} failed: {outcome.message}", "see the message")
        return _read(run)


def _read(run: Path) -> Trained:
    parameters: dict[str, str] = {}
    steps: dict[str, list[tuple[int, int]]] = {}
    for event in events.read(run / "events"):
        if event["kind"] == "final" and "parameters_sha256" in event:
            parameters[event["node"]] = event["parameters_sha256"]
        elif event["kind"] == "round":
            steps.setdefault(event["node"], []).append((event["round"], event["steps"]))
    return Trained(parameters, steps)


def trained(subject: Subject, back_end: str, number: int = 0) -> Trained:
    """Return a finished training, kept for later requirements; another ``number`` is another run."""
    return _trained(subject.axis_name, subject.kind, json.dumps(dict(subject.values)), back_end, number)


def order_of_arrival_matters(subject: Subject) -> bool:
    """Return whether runs in real time may differ in their bits."""
    entry, options = subject.entry, subject.options
    match subject.axis_name:
        case "sync":  # each push is applied as it arrives, or local steps follow from measured times
            return not entry.waits or bool(entry.assigns_steps)
        case "order":  # what travels unreliably may be lost
            return bool(entry.best_effort and not entry.repairs_losses(options))
        case "overlay":  # sums are rounded along trees that follow measured rates
            measured = entry.adapts or issubclass(entry, ScheduledOverlay)
            return bool(measured and subject.values.get("merge") == "sum")
    return False


# ---- requirements ---------------------------------------------------------------------------------------------------

_CURE = "draw from seeds only; use no clock, no hash() of text, no set in iteration order, no state outside the object"


@requirement("assign steps in replies only with assigns_steps = True; declare the others in local_steps")
def training_takes_the_declared_steps_in_the_virtual_world(subject: Subject) -> None:
    """Simulated, every worker makes all rounds, with the local steps that are declared."""
    _declared_steps(subject, "simulate")


@requirement(_CURE)
def training_repeats_to_the_bit(subject: Subject) -> None:
    """Two simulated runs end with equal parameters."""
    _equal(trained(subject, "simulate"), trained(subject, "simulate", number=1))


@requirement("assign steps in replies only with assigns_steps = True; declare the others in local_steps")
def training_takes_the_declared_steps_in_real_processes(subject: Subject) -> None:
    """In processes on loopback, every worker makes all rounds, with the local steps that are declared."""
    _declared_steps(subject, "local")


@requirement(_CURE)
def training_gives_equal_bits_in_both_worlds(subject: Subject) -> None:
    """Simulated, and in real processes, runs end with equal parameters, unless the order of arrival matters."""
    real = trained(subject, "local")
    if not order_of_arrival_matters(subject):
        _equal(trained(subject, "simulate"), real)


def _equal(first: Trained, second: Trained) -> None:
    different = sorted(node for node in first.parameters if first.parameters[node] != second.parameters.get(node))
    require(first.parameters and not different, f"parameters of {', '.join(different) or 'no node'} differ")


def _declared_steps(subject: Subject, back_end: str) -> None:
    steps = trained(subject, back_end).steps
    require(len(steps) == _WORKERS, f"rounds of {sorted(steps)}", "see `testbed run` with this technique")
    is_sync = subject.axis_name == "sync"
    assigned = is_sync and subject.entry.assigns_steps
    expected = []
    for round_ in range(_rounds(subject)):
        declared = subject.entry.local_steps(subject.options, round_) if is_sync else 1
        expected.append((round_, 0 if assigned else declared))
    for worker, made in steps.items():
        found = [(round_, 0 if assigned else count) for round_, count in made]
        require(found == expected, f"{worker} made (round, steps) {made}, and declared are {expected}")
