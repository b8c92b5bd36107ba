"""How good advice is: drawn scenarios, and every technique on each of them, packet by packet, with three seeds.

    testbed bench advice --seed 7 --scenarios 30 --out advice-7

Each scenario is a folder below ``--out``, in which the advice and every whole run are kept, so that the command goes on
where it was interrupted. A row: ``regret``, how much more the advised technique takes than the best one, of means over
seeds; ``rank_of_best``, where the best one stands in the advice; ``covered`` of ``intervals``: how many 90 % intervals
hold the mean of the whole runs. Runs that have taken ``--far`` times the best one's time are stopped: they are worse.
The seeds are the scenario's own and the two after it, or ``--other-seeds``, which the advice has not seen.
"""

from __future__ import annotations

import json
import math
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from analysis.advise import pool
from analysis.advise.advising import Words, advise, wish
from analysis.advise.budget import Seconds
from analysis.advise.files import file_name
from analysis.advise.observation import Limits, Observation
from analysis.advise.output import as_records
from analysis.advise.techniques import techniques
from analysis.benchmarks.drawn_scenarios import DrawnScenario, draw
from analysis.benchmarks.harness import Row
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results import atomic

SEEDS = 3
OTHERS_FROM = 101

ARGUMENTS: dict[str, dict[str, Any]] = {
    "--seed": {"type": int, "default": 1, "help": "of the drawing"},
    "--first": {"type": int, "default": 0, "help": "number of the first scenario"},
    "--scenarios": {"type": int, "default": 3},
    "--budget": {"type": float, "default": 120.0, "help": "seconds of each advice"},
    "--far": {"type": float, "default": 2.5},
    "--other-seeds": {"action": "store_true", "help": "compare with seeds that the advice has not seen"},
    "--out": {"type": Path, "default": Path("advice-check")},
}


def measure(options: Namespace) -> Iterator[Row]:
    for number in range(options.first, options.first + options.scenarios):
        yield _checked(options, number)


def _checked(options: Namespace, number: int) -> Row:
    drawn = draw(options.seed, number)
    folder = options.out / f"{options.seed}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.yaml").write_text(drawn.text, encoding="utf-8")
    advice = _advice(drawn, folder, options.budget)
    first = OTHERS_FROM if options.other_seeds else 1
    truth: dict[str, dict[int, float]] = {}
    for seed in range(first, first + SEEDS):
        for name, value in _whole_runs(drawn, advice, folder, seed, options.far).items():
            truth.setdefault(name, {})[seed] = value
    return _row(options, number, drawn, advice, {name: fmean(values.values()) for name, values in truth.items()})


def _advice(drawn: DrawnScenario, folder: Path, budget_s: float) -> dict[str, Any]:
    """Return what is kept of the advice; it is asked for if there is none yet."""
    path = folder / "advice.json"
    if not path.is_file():
        begin_s = time.monotonic()
        words = wish(drawn.read([], "simulate"), Words(drawn.goal, drawn.least))
        given = advise(drawn.read, techniques(), words, Seconds(budget_s))
        took_s = time.monotonic() - begin_s
        scenarios = {row.name: _settings(given.known[row.name], drawn) for row in given.rows if row.name in given.known}
        kept = {"rows": as_records(given), "settings": scenarios, "took_s": took_s, "simulations": given.simulations}
        atomic.write_json(path, kept)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _settings(known: Any, drawn: DrawnScenario) -> list[str]:
    length = [f"training.rounds={known.rounds}", f"training.evaluate_every={known.every}"] if known.rounds else []
    target = f"training.target_accuracy={drawn.accuracy}"
    return [*known.candidate.settings, *length, target, "simulation.network=packets"]


def _whole_runs(drawn: DrawnScenario, advice: dict[str, Any], folder: Path, seed: int, far: float) -> dict[str, float]:
    """Return the value of each technique in a whole run with this seed; infinite: not reached, or too far."""
    values: dict[str, float] = {}
    kept = folder / f"runs-{seed}"
    kept.mkdir(exist_ok=True)
    best_s = math.inf
    order = [row["name"] for row in advice["rows"] if row["name"] in advice["settings"]]
    plans = {name: _plan(drawn, advice["settings"][name], seed) for name in order}
    pool.prepare(list(plans.values()))

    def waiting() -> Iterator[pool.Task[str]]:
        for name in order:
            if not _place(kept, name).is_file():
                limit_s = math.inf if drawn.least == "bytes" else far * best_s
                yield pool.Task(name, plans[name], Limits(virtual_s=limit_s))

    def take(name: str, seen: dict[str, Any]) -> None:
        nonlocal best_s
        values[name] = seen["value"] if seen["value"] is not None else math.inf
        if drawn.least == "time":
            best_s = min(best_s, values[name])

    for name in order:
        if (path := _place(kept, name)).is_file():
            take(name, json.loads(path.read_text(encoding="utf-8")))
    for task, seen in pool.simulate_all(waiting(), len(os.sched_getaffinity(0))):
        result = {"name": task.key, "value": _value(seen, drawn), "status": seen.status, "message": seen.message}
        atomic.write_json(_place(kept, task.key), result)
        take(task.key, result)
    return values


def _place(kept: Path, name: str) -> Path:
    return kept / f"{file_name(name)}.json"


def _plan(drawn: DrawnScenario, settings: list[str], seed: int) -> Plan:
    return build_plan(drawn.read([*settings, f"seed={seed}"], "simulate"))


def _value(seen: Observation, drawn: DrawnScenario) -> float | None:
    score = seen.first_at(drawn.accuracy)
    if score is None:
        return None
    return score.at_s if drawn.least == "time" else float(seen.wan_bytes_by(score.at_s))


def _row(options: Namespace, number: int, drawn: DrawnScenario, advice: dict[str, Any], truth: dict[str, float]) -> Row:
    ranked = [row for row in advice["rows"] if row["outcome"] in ("ranked", "beaten")]
    best = min(truth, key=truth.__getitem__)
    chosen = ranked[0]["name"] if ranked else ""
    names = [row["name"] for row in ranked]
    judged = [(row, truth[row["name"]]) for row in advice["rows"] if row["outcome"] == "ranked"]
    known = [(row, value) for row, value in judged if math.isfinite(value)]
    covered = [row["low"] <= value <= row["high"] for row, value in known]
    return {
        "scenario": f"{options.seed}-{number}",
        "least": drawn.least,
        "advised": chosen,
        "best": best,
        "regret": truth[chosen] / truth[best] - 1 if chosen and math.isfinite(truth[best]) else math.nan,
        "rank_of_best": names.index(best) + 1 if best in names else 99,
        "covered": sum(covered),
        "intervals": len(covered),
        "took_s": advice["took_s"],
        "simulations": advice["simulations"],
    }
