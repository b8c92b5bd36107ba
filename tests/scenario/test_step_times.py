"""Step times from a CSV file: which worker gets which, what is refused, and scenarios of thousands of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario import loads
from tests.for_each import for_each

TEXT = """
version: 1
name: times
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: a, central: true, workers: 2}
    - {name: b, workers: 2, worker_devices: {worker1: {speed: 2}}}
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, rounds: 3}
device: {step_time: 40 ms, step_times: {file: t.csv}}
"""


def plan_of(folder: Path, table: str, text: str = TEXT) -> Plan:
    (folder / "t.csv").write_text(table)
    return build_plan(loads(text, folder=folder))


def times(plan: Plan) -> list[float]:
    return [node.device.step_time_s for node in plan.nodes if node.role == "worker"]


def test_a_worker_comes_before_its_data_centre_and_the_others_keep_step_time(tmp_path: Path) -> None:
    table = "worker,step_time_ms\na/worker1,70\nb,100\n"
    assert times(plan_of(tmp_path, table)) == [0.04, 0.07, 0.1, 0.05]
    assert times(plan_of(tmp_path, "# measured\nworker,step_time_s\nb/worker0,0.2\n")) == [0.04, 0.04, 0.2, 0.02]


@for_each(
    ("site", "worker", "expected"),
    [
        ("", "", [0.07, 0.1]),
        ("step_time: 90 ms", "", [0.07, 0.09]),
        ("", "step_time: 50 ms", [0.05, 0.1]),
        ("step_time: 90 ms", "step_time: 50 ms", [0.05, 0.09]),
        ("speed: 2", "speed: 0.5", [0.14, 0.05]),
    ],
)
def test_what_is_said_of_a_worker_comes_before_what_is_said_of_its_data_centre(
    site: str, worker: str, expected: list[float], tmp_path: Path
) -> None:
    """In the scenario and in the file: worker, row of the worker, data centre, row of the data centre."""
    own = f"{{name: a, central: true, device: {{{site}}}, worker_devices: {{worker0: {{{worker}}}}}, workers: 2}}"
    text = TEXT.replace("{name: a, central: true, workers: 2}", own)
    found = times(plan_of(tmp_path, "worker,step_time_ms\na/worker0,70\na,100\n", text))
    assert found == [*expected, 0.04, 0.02]


def test_the_resolved_scenario_needs_no_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("worker,step_time_ms\na/worker1,70\nb,100\n")
    scenario = loads(TEXT, folder=tmp_path)
    again = loads(scenario.to_yaml())
    assert build_plan(again) == build_plan(scenario)
    assert "a/worker1 0.07 b 0.1" in scenario.to_yaml()


@for_each(
    ("table", "said"),
    [
        ("a/worker0,3\n", "t.csv:1: expected the header 'worker,step_time_ms'"),
        ("worker,step_time_ms\na/worker0\n", "t.csv:2: has 1 cells"),
        ("worker,step_time_ms\na/worker0,x\n", "t.csv:2: 'x' is not a number"),
        ("worker,step_time_ms\na,1\na,2\n", "t.csv:3: 'a' is there twice"),
        ("worker,step_time_ms\nc/worker0,1\n", "12:28: device.step_times: no worker or data centre 'c/worker0'"),
    ],
)
def test_a_refusal_names_file_and_line(table: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        plan_of(tmp_path, table)
    assert said in str(raised.value)


@for_each(
    ("override", "said"),
    [
        ("device.step_times='a/worker0 -5'", "seconds in (0, 3600]"),
        ("device.step_times='a/worker0 5 a/worker0 6'", "names, each once"),
        ("device.profile='[[NaN, 2]]'", "times of layers from 0 s to 1 h"),
        ("simulation.costs='{\"fp16 encode\": [-1, 0, 0]}'", "a table of costs of at least 0 s"),
    ],
)
def test_a_table_in_one_text_has_the_bounds_of_its_file(override: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("worker,step_time_ms\na/worker1,70\n")
    with pytest.raises(ScenarioError) as raised:
        loads(TEXT, overrides=[override], folder=tmp_path)
    assert said in str(raised.value)
