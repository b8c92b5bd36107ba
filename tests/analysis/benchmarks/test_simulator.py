"""The simulator's benchmark: its cases are runs that this release takes."""

from __future__ import annotations

from functools import partial

from analysis.benchmarks.simulator import CASES, rounds_of
from testbed.scenario.load import loads


def test_the_scenario_of_every_case_is_valid() -> None:
    scenarios = [
        case.run.args[0] for case in CASES.values() if isinstance(case.run, partial) and case.run.func is rounds_of
    ]
    assert len(scenarios) >= 7
    for text in scenarios:
        assert loads(text).run.on == "simulate"
