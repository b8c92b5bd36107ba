"""The check of advice: what it draws, what it keeps, and how it judges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.advise import pool
from analysis.advise.observation import DONE, STOPPED, Limits, Observation, Score
from analysis.advise.prices import read_prices
from analysis.benchmarks import advice as check
from analysis.benchmarks.drawn_scenarios import DrawnScenario, draw
from analysis.benchmarks.whole_runs import Followed, Mean, WholeRuns
from testbed.plan.build import build_plan
from tests.analysis.advise.small import TEXT


def test_drawn_scenarios_are_those_of_their_seed_and_number_and_differ() -> None:
    drawn = [draw(3, number) for number in range(12)]
    assert [draw(3, number) for number in range(12)] == drawn
    assert len({each.text for each in drawn}) == 12
    plans = [build_plan(each.read([], "simulate")) for each in drawn]
    sites = [len(plan.network.sites) for plan in plans]
    assert min(sites) >= 3 and max(sites) <= 16 and len(set(sites)) > 3
    assert any(link.rate_trace for plan in plans for link in plan.network.links)
    assert {each.least for each in drawn} == {"time", "bytes", "money"}


def test_a_check_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "draw", lambda seed, number: DrawnScenario(TEXT, 0.7, "time"))
    monkeypatch.setattr(check, "techniques", lambda: {})
    monkeypatch.setattr(check, "SEEDS", 1)
    options = SimpleNamespace(seed=1, first=0, scenarios=1, budget=60.0, jobs=1, out=tmp_path)
    (row,) = check.measure(options)  # type: ignore[arg-type]
    assert row["advised"] == row["best"] == "fsa (as written)"
    assert (
        row["regret"] == row["regret_others"] == 0
        and row["rank_of_best"] == 1
        and row["intervals"] == row["covered_own"] == 1
    )
    asked: list[object] = []
    monkeypatch.setattr(check.pool, "simulate_all", lambda tasks, jobs: asked.extend(tasks) or [])
    assert list(check.measure(options)) == [row]  # type: ignore[arg-type]
    assert not asked


def test_whole_runs_are_made_as_far_as_they_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    takes = {
        "first": (10.0, 11.0, 12.0),
        "best": (9.0, 10.0, 11.0),
        "late": (14.0, 40.0, 1.0),
        "never": (math.inf,) * 3,
    }
    made: list[tuple[str, int, float]] = []

    def simulate(tasks: Iterable[pool.Task[tuple[str, int]]], jobs: int) -> Iterator[object]:
        for task in tasks:
            (name, seed), limit_s = task.key, task.limits.virtual_s
            made.append((name, seed, limit_s))
            at_s = takes[name][seed - 1]
            reached = (
                (Score(1, at_s, 0.9, 0.3), Score(2, at_s, 0.9, 0.3)) if at_s <= limit_s and at_s < math.inf else ()
            )
            status = STOPPED if limit_s < at_s < math.inf else DONE
            yield task, Observation(status, "", scores=reached)

    monkeypatch.setattr(pool, "simulate_all", simulate)

    def runs(high: float) -> WholeRuns:
        return WholeRuns(
            seeds=(1, 2, 3),
            plan_of=lambda name, seed: None,  # type: ignore[arg-type, return-value]
            value_of=lambda seen: seen.scores[0].at_s if seen.scores else None,
            limits=lambda most: Limits(virtual_s=most),
            guess=30.0,
            techniques=[Followed(name, high, tmp_path / f"{name}.json") for name in takes],
        )

    means = runs(high=0.0).means(jobs=1)
    assert means["first"] == Mean(11.0, True) and means["best"] == Mean(10.0, True)
    assert means["late"] == Mean(10.0, False), "with 14 s and more than 16 s it is not the best, whatever comes then"
    assert means["never"] == Mean(math.inf, True)
    assert [run for run in made if run[0] in ("late", "never")] == [
        ("late", 1, 30.0),
        ("late", 2, 16.0),
        ("never", 1, 30.0),
    ]
    made.clear()
    assert runs(high=0.0).means(jobs=1) == means and not made, "kept"
    assert runs(high=19.0).means(jobs=1)["late"] == Mean(55 / 3, True), (
        "its interval ends later, so more is to be known"
    )
    assert made == [("late", 2, 43.0), ("late", 3, 3.0)]


def test_money_is_limited_by_time_and_bytes(tmp_path: Path) -> None:
    drawn = DrawnScenario("", 0.9, "money", "data_center,usd_per_gb,usd_per_hour\na,0.1,3.6\nb,0.2,0\n")
    path = tmp_path / "prices.csv"
    path.write_text(drawn.prices, encoding="utf-8")
    prices = read_prices(path)
    assert check.limits_of(drawn, prices, 2.0) == Limits(virtual_s=2000.0, wan_bytes=pytest.approx(2e10))
    scores = (Score(1, 4.0, 0.9, 0.3), Score(2, 5.0, 0.9, 0.3))
    seen = Observation(DONE, "", (4.0, 5.0), (10**9, 2 * 10**9), {("b", "a"): 2 * 10**9}, scores=scores)
    assert check.value_of(drawn, prices, seen) == pytest.approx(0.2 + 0.004)
