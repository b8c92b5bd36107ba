"""How good advice is: drawn scenarios, and every technique on each of them, packet by packet, with three seeds.

    testbed bench advice --seed 7 --scenarios 30 --out advice-7

Each scenario is a folder below ``--out``, in which the advice and every whole run are kept, so that the command goes on
where it was interrupted. Budgets are processor time: other work on the machine changes nothing.

Columns of the table:

regret            by what share the advised technique takes more than the best one, by means over the scenario's own
                  seed and the next two, which the advice may have seen
regret_others     the same among the techniques that the advice ranks, with three seeds that it has not seen
rank_of_best      the place of the best technique in the advice
intervals         90 % intervals that the advice gave
covered           how many of them contain the mean of whole runs with three seeds that the advice has not seen
covered_own       how many contain the mean with the seeds that it may have seen
"""

from __future__ import annotations

import json
import math
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from analysis.advise import pool
from analysis.advise.advising import Words, advise, wish
from analysis.advise.budget import ProcessorSeconds
from analysis.advise.files import file_name
from analysis.advise.goal import BYTES, TIME
from analysis.advise.observation import Limits, Observation
from analysis.advise.output import as_records
from analysis.advise.prices import Prices, read_prices
from analysis.advise.techniques import techniques
from analysis.benchmarks.drawn_scenarios import DrawnScenario, draw
from analysis.benchmarks.harness import Row
from analysis.benchmarks.whole_runs import Followed, Mean, WholeRuns
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results import atomic
from testbed.target import ACCURACY, Target

SEEDS = 3
OTHERS_FROM = 101

ARGUMENTS: dict[str, dict[str, Any]] = {
    "--seed": {"type": int, "default": 1, "help": "of the drawing"},
    "--first": {"type": int, "default": 0, "help": "number of the first scenario"},
    "--scenarios": {"type": int, "default": 3},
    "--budget": {"type": float, "default": 120.0, "help": "seconds of each advice, if nothing else ran"},
    "--jobs": {"type": int, "default": len(os.sched_getaffinity(0)), "help": "simulations at once"},
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
    prices = None
    if drawn.prices:
        (folder / "prices.csv").write_text(drawn.prices, encoding="utf-8")
        prices = read_prices(folder / "prices.csv")
    advice = _advice(drawn, folder, options)
    follow = partial(_means, drawn, prices, advice, folder, options.jobs)
    ranked = [row["name"] for row in advice["rows"] if row["outcome"] == "ranked"]
    own = follow([row["name"] for row in advice["rows"] if row["name"] in advice["settings"]], 1)
    others = follow(ranked, OTHERS_FROM)
    return _row(options, number, drawn, advice, own, others)


def _advice(drawn: DrawnScenario, folder: Path, options: Namespace) -> dict[str, Any]:
    """Return the stored results of the advice; if there are none, ask for the advice first."""
    path = folder / "advice.json"
    if not path.is_file():
        begin_s = processor_s()
        prices = folder / "prices.csv" if drawn.prices else None
        words = Words(drawn.goal, drawn.least, jobs=options.jobs, prices=prices)
        asked = wish(drawn.read([], "simulate"), words)
        given = advise(drawn.read, techniques(), asked, ProcessorSeconds(options.budget, options.jobs), explained=False)
        took_s = (processor_s() - begin_s) / options.jobs
        scenarios = {row.name: _settings(given.known[row.name], drawn) for row in given.rows if row.name in given.known}
        kept = {"rows": as_records(given), "settings": scenarios, "took_s": took_s, "simulations": given.simulations}
        atomic.write_json(path, kept)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def processor_s() -> float:
    """Return the processor time (s) of this process and of the ended child processes that it has waited for."""
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


def _settings(known: Any, drawn: DrawnScenario) -> list[str]:
    length = [f"training.rounds={known.rounds}", f"training.evaluate_every={known.every}"] if known.rounds else []
    target = f"training.target_accuracy={drawn.accuracy}"
    return [*known.candidate.settings, *length, target, "simulation.network=packets"]


def _means(
    drawn: DrawnScenario,
    prices: Prices | None,
    advice: dict[str, Any],
    folder: Path,
    jobs: int,
    names: Sequence[str],
    first_seed: int,
) -> Mapping[str, Mean]:
    """Return the mean value of each technique in whole runs with ``SEEDS`` seeds, ``first_seed`` and the next ones."""
    if not names:
        return {}
    kept = folder / f"runs-{first_seed}"
    kept.mkdir(exist_ok=True)
    settings = _kept_settings(advice, folder)
    high = {row["name"]: row["high"] for row in advice["rows"] if row["outcome"] == "ranked"}
    pool.prepare([_plan(drawn, settings[name], first_seed) for name in names])
    runs = WholeRuns(
        seeds=range(first_seed, first_seed + SEEDS),
        plan_of=lambda name, seed: _plan(drawn, settings[name], seed),
        value_of=partial(value_of, drawn, prices),
        limits=partial(limits_of, drawn, prices),
        guess=high.get(names[0], math.inf),
        techniques=[Followed(name, high.get(name, 0.0), kept / f"{file_name(name)}.json") for name in names],
    )
    return runs.means(jobs)


def _kept_settings(advice: dict[str, Any], folder: Path) -> dict[str, list[str]]:
    """Return the settings of whole runs by technique. If advice is given again, the settings of the first time stay."""
    path = folder / "settings.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    settings = {**advice["settings"], **kept}
    if settings != kept:
        atomic.write_json(path, settings)
    return settings


def _plan(drawn: DrawnScenario, settings: list[str], seed: int) -> Plan:
    return build_plan(drawn.read([*settings, f"seed={seed}"], "simulate"))


def value_of(drawn: DrawnScenario, prices: Prices | None, seen: Observation) -> float | None:
    score = seen.first_at(Target(ACCURACY, drawn.accuracy))
    if score is None:
        return None
    wan_bytes = float(seen.wan_bytes_by(score.at_s))
    if drawn.least == TIME:
        return score.at_s
    if drawn.least == BYTES:
        return wan_bytes
    assert prices is not None
    return wan_bytes * prices.of_byte(seen.pairs) + prices.usd_per_hour * score.at_s / 3600


def limits_of(drawn: DrawnScenario, prices: Prices | None, most: float) -> Limits:
    """Return the limits beyond which a run has taken more than ``most``, even if every byte has the lowest price."""
    if drawn.least == TIME:
        return Limits(virtual_s=most)
    if drawn.least == BYTES:
        return Limits(wan_bytes=most)
    assert prices is not None
    least_usd_per_byte = min(prices.usd_per_gb.values()) / 1e9
    return Limits(virtual_s=most / prices.usd_per_hour * 3600, wan_bytes=most / least_usd_per_byte)


def _row(
    options: Namespace,
    number: int,
    drawn: DrawnScenario,
    advice: dict[str, Any],
    own: Mapping[str, Mean],
    others: Mapping[str, Mean],
) -> Row:
    names = [row["name"] for row in advice["rows"] if row["outcome"] in ("ranked", "beaten")]
    exact = _exact(own)
    best = min(exact, key=exact.__getitem__)
    chosen = names[0] if names else ""
    intervals = [row for row in advice["rows"] if row["outcome"] == "ranked"]
    return {
        "scenario": f"{options.seed}-{number}",
        "least": drawn.least,
        "advised": chosen,
        "best": best,
        "regret": _regret(exact, chosen),
        "regret_others": _regret(_exact(others), chosen),
        "rank_of_best": names.index(best) + 1 if best in names else 99,
        "covered": sum(_is_covered(row, others) for row in intervals),
        "covered_own": sum(_is_covered(row, own) for row in intervals),
        "intervals": len(intervals),
        "took_s": advice["took_s"],
        "simulations": advice["simulations"],
    }


def _exact(means: Mapping[str, Mean]) -> dict[str, float]:
    return {name: mean.value for name, mean in means.items() if mean.is_exact}


def _regret(values: Mapping[str, float], chosen: str) -> float:
    """Return how much more the chosen technique takes than the best one, as a share; NaN if unknown."""
    best = min(values.values(), default=math.inf)
    return values[chosen] / best - 1 if chosen in values and math.isfinite(best) else math.nan


def _is_covered(row: Mapping[str, Any], means: Mapping[str, Mean]) -> bool:
    """Return whether the interval contains the mean.

    Where only a lower bound of the mean is known, runs were stopped because the mean is above the interval.
    """
    mean = means[row["name"]]
    return mean.is_exact and bool(row["low"] <= mean.value <= row["high"])
