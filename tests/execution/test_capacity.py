"""Which Plans a machine is too slow for, and the warning about them."""

from __future__ import annotations

import re

import pytest

from testbed.execution.capacity import Machine, step_s, too_slow, too_slow_together, workers_carried
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from testbed.shipped import names

FAST, SLOW, OLD = Machine(2, 1.0), Machine(2, 8.0), Machine(2, 2.0)


def test_steps_that_need_more_than_half_of_the_cores_are_told_with_the_step_time_that_would_do() -> None:
    quickstart = build_plan(load("quickstart"))
    assert too_slow(quickstart, FAST) == too_slow(quickstart, OLD) == []
    (told,) = too_slow(quickstart, SLOW)
    assert "6 workers keep 2 cores busy for 113% of the step time" in told
    enough = re.search(r"at least (\d+) ms", told)
    assert enough is not None
    assert too_slow(build_plan(load("quickstart", [f"device.step_time={enough[1]} ms"])), SLOW) == []
    assert workers_carried(step_s(quickstart, SLOW), int(enough[1]) / 1e3, SLOW.cores) == 6


def test_jobs_that_are_not_too_slow_each_by_itself_may_be_so_together() -> None:
    quickstart = build_plan(load("quickstart"))
    assert too_slow(quickstart, OLD) == too_slow_together([quickstart], OLD) == []
    (told,) = too_slow_together([quickstart] * 4, OLD)
    assert re.search(r"jobs: the steps of all jobs keep 2 cores busy for \d+% of the step times", told)
    factor = re.search(r"step times ([\d.]+) times as long", told)
    assert factor is not None
    longer = build_plan(load("quickstart", [f"device.step_time={100 * float(factor[1]) + 5} ms"]))
    assert too_slow_together([longer] * 4, OLD) == []
    assert too_slow_together([build_plan(load("quickstart"), "simulate")] * 9, Machine(1, 1e6)) == []


@pytest.mark.parametrize(
    ("scenario", "overrides"),
    [
        ("quickstart", ["device.pace=measured"]),
        ("quickstart", ["run.on=simulate"]),
        ("scripts/plain_pytorch", []),
        ("programs/ddp", []),
    ],
)
def test_nothing_is_said_of_steps_that_are_not_known_or_not_paced(scenario: str, overrides: list[str]) -> None:
    assert too_slow(build_plan(load(scenario, overrides)), Machine(1, 1e6)) == []


def test_shipped_scenarios_that_are_emulated_say_how_many_cores_they_want() -> None:
    for name, file in names().items():
        if "\njobs:" in file.read_text():
            continue
        scenario = load(file)
        if scenario.run.on == "emulate":
            header = re.search(r"^# Emulated, it wants (\d+) cores\.$", file.read_text(), re.MULTILINE)
            assert header is not None, f"{name} does not say how many cores it wants"
            machine = Machine(int(header[1]), FAST.slowness)
            assert machine.cores >= 2 and too_slow(build_plan(scenario), machine) == [], name
