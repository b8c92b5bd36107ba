"""A short training with the technique, in the virtual world and in real processes on loopback.

Two data centres of two workers train a small perceptron on digits (three, where an overlay is checked). Step counts
must be those declared, and parameters equal to the bit: in a second virtual run always, and in real processes wherever
the order of arrival decides nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from testbed.execution import host, session
from testbed.plan.build import build_plan
from testbed.plan.model import Plan, to_json
from testbed.policy.events import Contribution
from testbed.policy.overlay.base import ScheduledOverlay
from testbed.policy.sync.base import SyncPolicy
from testbed.results import events
from testbed.scenario.load import loads
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require
from testbed.training.options.declarations import RECORDS, TEXT

ROUNDS = 8  # at least
_SENTENCE = "the quick brown fox jumps over the lazy dog; "
_PERCEPTRON = {"kind": "mlp", "hidden": 8}
_TRANSFORMER = {"kind": "transformer", "layers": 1, "heads": 2, "head_width": 4}
_RECOMMENDER = {"kind": "recommender", "rows": 500, "width": 4, "hidden": 8}
_CLICKS = {"kind": "clicks", "categories": 100, "train_samples": 400, "test_samples": 100}


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run: hash of the parameters by node, and local steps by worker and round."""

    parameters: dict[str, str]
    steps: dict[str, list[tuple[int, int]]]


def scenario_of(subject: Subject, folder: Path) -> dict[str, Any]:
    """Return the scenario, as a document; texts for language models are written to ``folder``."""
    chosen = {"kind": subject.kind, **subject.values}
    sites = [{"name": "hub", "central": True, "workers": 2}, {"name": "east", "workers": 2}]
    links = [_link("hub", "east")]
    text = folder / "text.txt"
    text.write_text(_SENTENCE * 40, encoding="utf-8")
    training: dict[str, Any] = {
        "model": _PERCEPTRON, "data": "digits", "batch": 16, "rounds": ROUNDS, "evaluate_every": ROUNDS,
    }  # fmt: skip
    document: dict[str, Any] = {
        "version": 1, "name": "check", "seed": 1, "training": training, "run": {"on": "simulate"},
        "topology": {"data_centers": sites, "links": links}, "device": {"pace": "paced", "step_time": "2 ms"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.05},
    }  # fmt: skip
    match subject.axis.name:
        case "sync":
            document |= _sync(subject.entry, chosen)
            training["rounds"] = training["evaluate_every"] = _rounds(subject)
        case "overlay":
            sites.append({"name": "west", "workers": 2})
            links += [_link("hub", "west"), _link("east", "west")]
            if "merge" in {option.name for option in fields(type(subject.options))}:
                chosen.setdefault("merge", "exact")
            document["overlay"] = chosen
        case "shard":
            sites[0]["global_servers"] = 2
            document["shard"] = chosen
        case "model":
            training["model"] = chosen
            if subject.entry.takes == TEXT:
                training["data"] = {"kind": "text", "file": str(text), "context": 16}
            elif subject.entry.takes == RECORDS:
                training["data"] = _CLICKS
        case "data":
            training["data"] = chosen
            training["model"] = {TEXT: _TRANSFORMER, RECORDS: _RECOMMENDER}.get(subject.entry.gives, _PERCEPTRON)
        case "split":
            training["split"] = chosen
        case axis:
            document[axis] = chosen
    return document


def _link(one: str, other: str) -> dict[str, Any]:
    return {"between": [one, other], "rate": "100 Mbit/s", "delay": "2 ms"}


def _sync(entry: type[SyncPolicy], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections ``sync`` and, for algorithms of models, ``optimizer``."""
    sync: dict[str, Any] = dict(chosen)
    if entry.tiers == (1,):
        sync = {"tier1": dict(chosen), "tier2": "fsa"}
    elif entry.tiers == (2,) and not entry.partner:
        sync = {"tier1": "fsa", "tier2": dict(chosen)}
    if entry.contribution is Contribution.GRADIENT:
        return {"sync": sync}
    return {"sync": sync, "optimizer": {"kind": "sgd", "learning_rate": 0.05, "at": "worker"}}


def _rounds(subject: Subject) -> int:
    """Return a number of rounds after which all nodes hold one model: the last one crosses the WAN."""
    every = int(subject.entry.lan_rounds(subject.options))
    return every * -(-ROUNDS // every)


@cache
def _trained(axis: str, kind: str, values: str, back_end: str, number: int) -> Trained:
    from testbed.testing.subject import AXES

    subject = Subject(AXES[axis], kind, json.loads(values))
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as name:
        folder = Path(name)
        scenario = loads(json.dumps(scenario_of(subject, folder)), "the check's scenario", folder=folder, on=back_end)
        plan = build_plan(scenario, back_end)
        run = folder / "run"
        run.mkdir()
        (run / "plan.json").write_bytes(to_json(plan))
        outcome = _run(plan, run)
        if outcome.exit_code:
            raise CheckFailed(f"a training that ends on {back_end}", outcome.message, "see the message")
        return _read(run)


def _run(plan: Plan, run: Path) -> session.SessionResult:
    """Run in this process (virtual world), or in a host process with a process per node."""
    if plan.back_end == "simulate":
        return host.attempt(plan, run, lambda event: None)
    return session.run(plan, run, lambda event: None)


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
    """Return a finished training, kept for later checks; another ``number`` is another run."""
    return _trained(subject.axis.name, subject.kind, json.dumps(dict(subject.values)), back_end, number)


def order_of_arrival_matters(subject: Subject) -> str:
    """Return why runs in real time may differ in their bits; empty: they may not."""
    entry, options = subject.entry, subject.options
    match subject.axis.name:
        case "sync" if not entry.waits:
            return "each push is applied as it arrives"
        case "sync" if entry.assigns_steps:
            return "local steps follow from measured times"
        case "order" if entry.best_effort and not entry.repairs_losses(options):
            return "what travels unreliably may be lost"
        case "overlay" if (entry.adapts or issubclass(entry, ScheduledOverlay)) and subject.values.get(
            "merge"
        ) == "sum":
            return "sums are rounded along trees that follow measured rates"
    return ""


# ---- checks ---------------------------------------------------------------------------------------------------------


def training_takes_the_declared_steps_in_the_virtual_world(subject: Subject) -> None:
    _declared_steps(subject, "simulate")


def training_repeats_to_the_bit(subject: Subject) -> None:
    first, second = trained(subject, "simulate"), trained(subject, "simulate", number=1)
    _equal(first, second, "a second virtual run")


def training_takes_the_declared_steps_in_real_processes(subject: Subject) -> None:
    _declared_steps(subject, "local")


def training_gives_equal_bits_in_both_worlds(subject: Subject) -> None:
    simulated, real = trained(subject, "simulate"), trained(subject, "local")
    if not order_of_arrival_matters(subject):
        _equal(simulated, real, "real processes")


def _equal(first: Trained, second: Trained, where: str) -> None:
    different = sorted(node for node in first.parameters if first.parameters[node] != second.parameters.get(node))
    require(
        first.parameters and not different, f"equal parameters in the virtual world and in {where}",
        f"those of {', '.join(different) or 'no node'} differ",
        "draw from seeds only; use no clock, no hash() of text, no set in iteration order, no state outside the object",
    )  # fmt: skip


def _declared_steps(subject: Subject, back_end: str) -> None:
    steps = trained(subject, back_end).steps
    count = _rounds(subject) if subject.axis.name == "sync" else ROUNDS
    require(
        len(steps) >= 4, "rounds of every worker", f"rounds of {sorted(steps)}", "see `testbed run` with this technique"
    )
    for worker, rounds in steps.items():
        expected = [(round_, _steps_of(subject, round_)) for round_ in range(count)]
        found = [(round_, each if wanted else 0) for (round_, each), (_, wanted) in zip(rounds, expected, strict=False)]
        require(
            found == expected and len(rounds) == count, f"local steps by round {expected}", f"{worker}: {rounds}",
            "assign steps in replies only with assigns_steps = True; declare the others in local_steps",
        )  # fmt: skip


def _steps_of(subject: Subject, round_: int) -> int:
    """Return the local steps declared for a round; 0 where replies assign them."""
    if subject.axis.name != "sync":
        return 1
    entry: type[SyncPolicy] = subject.entry
    return 0 if entry.assigns_steps else entry.local_steps(subject.options, round_)
