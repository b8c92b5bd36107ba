"""Random combinations of techniques: each is refused with a cure, or trains.

    python -m analysis.benchmarks combinations --count 500 --seed 1
    python -m analysis.benchmarks combinations --count 30 --on emulate

A combination has values on three or more axes, drawn alike from the tables, and often an option of theirs that has a
list of choices. What the values need beside them (``testbed matrix``) is added. A row is ``ok`` if the combination is
refused before it starts, by problems that each say what to write instead; or if it trains: it ends, its accuracy is
above chance, its links have carried the bytes of its messages, and it ends with the same parameters when repeated.
On other back ends than ``simulate`` a run is compared with its simulation instead, where its arithmetic does not depend
on time, and links are counted by the kernel, together with what TCP sends again.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from analysis.benchmarks.harness import Row
from testbed.axes import options_of
from testbed.errors import ScenarioError
from testbed.execution import host, record, session
from testbed.ids import data_center_of
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.policy.gossip import ALGORITHMS
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.results.events import read
from testbed.scenario.load import loads
from testbed.scenario.matrix import AXES, Combination, overrides
from testbed.scenario.reading.axes import AXES as KINDS
from testbed.training.options import OPTIMIZERS, SPLITS

ABOVE_CHANCE = 0.05  # three standard deviations of the accuracy on 359 samples
BASE = """
version: 1
name: combinations
seed: 1
topology:
  data_centers:
    - {name: hub, central: true, workers: 2}
    - {name: east, workers: 2}
    - {name: west, workers: 2, device: {speed: 0.6}}
  links:
    - {between: [hub, east], rate: 20 Mbit/s, delay: 5 ms}
    - {between: [hub, west], rate: 20 Mbit/s, delay: 8 ms}
    - {between: [east, west], rate: 20 Mbit/s, delay: 3 ms}
training: {model: {kind: mlp, hidden: 24}, data: digits, batch: 16, rounds: 40, evaluate_every: 10}
device: {step_time: 20 ms, variation: 10 %}
optimizer: {kind: adam, learning_rate: 0.005}
"""
# for a model of 1 800 parameters in 40 rounds: with a codec's usual bound, all its keys would travel whole
SMALL_MODEL: dict[str, dict[str, Any]] = {
    "hfa": {"k1": 3, "k2": 2},
    "diloco": {"h": 3},
    "twobit": {"threshold": 0.01},
    "mpq": {"bound": 100, "ratio": 0.1},
    **{kind: {"bound": 100, "ratio": 0.1} for kind in ("bisparse", "dgc", "mstopk", "topk", "randomk")},
    "sparseloco": {"chunk": 64, "k": 8},
    "demo": {"chunk": 8, "k": 8},
    "dgt": {"block": "512 bytes"},
    "tree": {"chunk": "2 KB"},
    "netstorm": {"chunk": "2 KB"},
    "tsengine": {"chunk": "2 KB"},
    "multigps": {"bound": 100},
    "allreduce": {"bucket": "4 KB"},
    "p3": {"slice": "1 KB"},
}
LEARNING_RATES = {
    "sgd": 0.1,
    "lars": 10.0,
    "nesterov": 0.02,
    "delayed_nesterov": 0.02,
    "signsgd": 0.002,
    "muon": 0.02,
    "dcasgd": 0.02,
}
OUTSIDE: dict[str, tuple[str, ...]] = {  # axes that are not part of ``testbed matrix``
    "optimizer": tuple(OPTIMIZERS.shipped),
    "split": tuple(SPLITS.shipped),
    "servers": ("1", "2"),
    "loss": ("0 %", "0.5 %"),
}
_CHOSEN = 0.5  # probability that an option with choices is drawn as well


@dataclass(frozen=True, slots=True)
class DrawnCase:
    """A drawn combination: its values, and all settings for it, as after ``--set``."""

    values: tuple[str, ...]
    settings: tuple[str, ...]


def draw(seed: int, number: int) -> DrawnCase:
    """Return the combination with this number in the sequence of a seed."""
    rng = random.Random(f"{seed} {number}")
    axes = rng.sample([*AXES, *OUTSIDE], rng.choice((3, 3, 3, 4, 5, 6)))
    values = {axis: rng.choice((AXES | OUTSIDE)[axis]) for axis in axes}
    combination = {axis: kind for axis, kind in values.items() if axis in AXES}
    settings = [*_outside(values), *overrides(combination)]
    for axis, kind in combination.items():
        settings += _options(rng, axis, kind)
    return DrawnCase(tuple(values.values()), tuple(dict.fromkeys(settings)))


def _outside(values: Combination) -> Iterator[str]:
    if "optimizer" in values:
        kind = values["optimizer"]
        yield f"optimizer={{kind: {kind}, learning_rate: {LEARNING_RATES.get(kind, 0.005)}}}"
    if "split" in values:
        yield f"training.split={values['split']}"
    if "servers" in values:
        yield f"topology.data_centers[0].global_servers={values['servers']}"
    if "loss" in values:
        yield f"topology.links[*].loss={values['loss']}"


def _options(rng: random.Random, axis: str, kind: str) -> Iterator[str]:
    """Yield the options of a value that suit a small model and, at random, one option with choices."""
    for name, value in SMALL_MODEL.get(kind, {}).items():
        yield f"{axis}.{name}={value}"
    options = fields(options_of(KINDS[axis][kind]))
    choices = [each for each in options if "choices" in each.metadata or each.type in ("bool", bool)]
    if choices and rng.random() < _CHOSEN:
        option = rng.choice(choices)
        value = rng.choice(option.metadata.get("choices", ("true", "false")))
        yield f"{axis}.{option.name}={value}"


def plan_of(case: DrawnCase, on: str = "simulate") -> Plan:
    """Return the Plan of a combination. Raise ``ScenarioError`` if it is refused.

    Simulations are by flows, which carry exactly the bytes of messages that ``wrong_bytes`` compares; packets would add
    acknowledgements.
    """
    network = ["simulation.network=flows"] if on == "simulate" else []
    return build_plan(loads(BASE, overrides=(*case.settings, *network, f"run.on={on}")), on)


@dataclass(frozen=True, slots=True)
class CombinationEnd:
    """The end of a run. ``wrong``: what is wrong with it, or empty; ``sha256``: of the parameters of each node."""

    wrong: str
    accuracy: float
    sha256: tuple[str, ...]


def run(plan: Plan) -> CombinationEnd:
    with tempfile.TemporaryDirectory() as folder:
        directory = record.prepare(Path(folder) / "run", plan, scenario=b"", resolved="", capabilities={}).path
        execute = session.run if plan.is_emulated else host.attempt
        outcome = execute(plan, directory, lambda event: None)
        events = list(read(directory / "events"))
    scores = [event for event in events if event["kind"] == "evaluate"]
    accuracy = max((float(event["accuracy"]) for event in scores), default=0.0)
    finals = sorted(
        (event["node"], str(event["parameters_sha256"])) for event in events if event.get("parameters_sha256")
    )
    wrong = ""
    if outcome.exit_code == ScenarioError.exit_code:  # settings that do not fit the sizes of tensors are refused late
        raise ScenarioError(outcome.message if "write " not in outcome.message else f"({outcome.message})")
    if outcome.status != "done":
        wrong = f"{outcome.status}: {outcome.message}"
    elif accuracy < scores[-1]["chance"] + ABOVE_CHANCE:
        wrong = f"accuracy {accuracy:.2f} is not above chance"
    elif not plan.facilities.has_processes:
        wrong = wrong_bytes(plan, events)
    return CombinationEnd(wrong, accuracy, tuple(digest for _, digest in finals))


def wrong_bytes(plan: Plan, events: Sequence[dict[str, Any]]) -> str:
    """Return, as text, a link whose carried bytes differ from those of the messages received over it; empty for none.

    With unreliable datagrams, links may carry more: their headers differ from those of TCP, and some are lost.
    """
    told: Counter[str] = Counter()
    for event in events:
        if event["kind"] == "transfer":
            here = data_center_of(event["source"])
            there = data_center_of(event["target"])
            for link in plan.network.between(here, there) if here != there else ():
                told[link] += event["payload_bytes"] + event["header_bytes"]
    carried = {event["link"]: event["bytes"] * 1448 / 1514 for event in events if event["kind"] == "link"}
    datagrams = ORDERS[plan.technique.order.kind].best_effort
    for link, size in carried.items():
        if size < told[link] - 1 or (not datagrams and size > told[link] + 1):
            return f"{link} carried {size:.0f} bytes, and messages of {told[link]} bytes arrived over it"
    return ""


def repeats_elsewhere(plan: Plan) -> bool:
    """Return whether a run ends with equal bits in every world: no decision depends on measured times."""
    technique = plan.technique
    tiers = ((technique.sync_tier1, technique.overlay_tier1), (technique.sync_tier2, technique.overlay_tier2))
    return (
        not ORDERS[technique.order.kind].best_effort
        and all(
            SYNC[sync.kind].waits
            and not SYNC[sync.kind].needs_reports
            and (not OVERLAYS[overlay.kind].relays or overlay.options.get("merge") == "exact")
            for sync, overlay in tiers
        )
        and not getattr(ALGORITHMS.get(str(technique.paradigm.options.get("algorithm"))), "pairwise", False)
    )


def examine(case: DrawnCase, on: str = "simulate") -> Row:
    """Run a combination, and repeat the run if its bits must be equal; return its row."""
    begin_s = time.process_time()
    accuracy = 0.0
    try:
        plan = plan_of(case, on)
        first = run(plan)
    except ScenarioError as error:
        uncured = [problem for problem in error.problems if not problem.rstrip().endswith(")")]
        ended = "refused"
        outcome = f"no cure: {uncured[0]}" if uncured else ""
    else:
        ended = "trained"
        outcome = first.wrong
        accuracy = first.accuracy
        if not outcome and (not plan.facilities.has_processes or repeats_elsewhere(plan)):
            again = run(plan_of(case) if plan.facilities.has_processes else plan)
            outcome = "" if again.sha256 == first.sha256 else "ends with other parameters when repeated"
    return {
        "ok": not outcome,
        "ended": ended,
        "accuracy": accuracy,
        "cpu_s": time.process_time() - begin_s,
        "values": " ".join(case.values),
        "wrong": outcome,
        "settings": " ; ".join(case.settings),
    }


def measure(options: argparse.Namespace) -> Iterator[Row]:
    done = 0
    number = options.first
    while done < options.count:
        case = draw(options.seed, number)
        number += 1
        row = examine(case, options.on)
        done += row["ended"] == "trained" or options.on == "simulate"
        yield {"number": number - 1, **row}


ARGUMENTS = {
    "--count": {"type": int, "default": 500, "help": "combinations; on other back ends, those that train"},
    "--seed": {"type": int, "default": 1},
    "--first": {"type": int, "default": 0, "help": "number of the first one"},
    "--on": {"default": "simulate", "choices": ("simulate", "local", "emulate")},
}
