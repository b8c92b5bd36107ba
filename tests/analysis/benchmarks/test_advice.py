"""The check of advice: what it draws, what it keeps, and how it judges."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.benchmarks import advice as check
from analysis.benchmarks.drawn_scenarios import DrawnScenario, draw
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
    assert {each.least for each in drawn} == {"time", "bytes"}


def test_a_check_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "draw", lambda seed, number: DrawnScenario(TEXT, 0.7, "time"))
    monkeypatch.setattr(check, "techniques", lambda: {})
    monkeypatch.setattr(check, "SEEDS", 1)
    options = SimpleNamespace(seed=1, first=0, scenarios=1, budget=60.0, far=2.5, other_seeds=True, out=tmp_path)
    (row,) = check.measure(options)  # type: ignore[arg-type]
    assert row["advised"] == row["best"] == "as written"
    assert row["regret"] == 0 and row["rank_of_best"] == 1 and row["intervals"] == 1
    asked: list[object] = []
    monkeypatch.setattr(check.pool, "simulate_all", lambda tasks, jobs: asked.extend(tasks) or [])
    assert list(check.measure(options)) == [row]  # type: ignore[arg-type]
    assert not asked
