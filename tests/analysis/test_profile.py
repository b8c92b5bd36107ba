"""``testbed profile``: what it measures of a model is what a simulation charges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli.main import main
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from tests.end_to_end.runs import run_scenario
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each

FEW = ("training.model=cnn", "training.rounds=4", "training.evaluate_every=4", "training.target_accuracy=null")
SEGMENTS = ["conv1", "conv2", "dense1", "dense2", "dense3"]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario in a folder of its own, as files must lie beside it."""
    path = tmp_path / "scenario.yaml"
    path.write_text(THREE_SITES.read_text())
    return path


def test_a_simulation_takes_the_times_of_a_profile(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = [str(scenario), "--on", "local", "--set", "training.model=cnn", "--repeats", "2", "--no-costs"]
    assert main(["profile", *what, "--out", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = [line.split(",") for line in (tmp_path / "profile.csv").read_text().splitlines() if line[0] != "#"]
    assert [row[0] for row in rows[1:]] == SEGMENTS
    times_s = [float(cell) * 1e-6 for row in rows[1:] for cell in row[1:]]
    assert sum(times_s) == pytest.approx(told["step_s"], rel=1e-4)

    given = "device.profile={file: profile.csv}"
    layers = "order={kind: p3, overlap: layers}"
    run = run_scenario(tmp_path / "run", "simulate", *FEW, given, layers, scenario=scenario)
    parts = {event["part"]: event["modelled_s"] for event in run.of_kind("compute") if event["work"] == "step"}
    expected = {
        f"{way} {index}": times_s[2 * index + back]
        for index in range(5)
        for back, way in enumerate(("forward", "backward"))
    }
    assert parts == pytest.approx(expected, rel=1e-6)
    (step_s,) = {node.device.step_time_s for node in run.plan.with_role("worker")}
    assert step_s == pytest.approx(told["step_s"], rel=1e-4)


def test_a_profile_of_another_model_is_refused(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("segment,forward_us,backward_us\na,10,20\nb,30,40\n")
    overrides = (*FEW, "device.profile={file: two.csv}", "order={kind: p3, overlap: layers}")
    run = run_scenario(tmp_path / "run", "simulate", *overrides, scenario=scenario)
    assert run.outcome.status == "failed"
    assert "has 2 segments, but the model" in run.outcome.message and "testbed profile" in run.outcome.message


@for_each(
    ("text", "problem"),
    [
        ("segment,forward,backward\na,1,2\n", "expected the header 'segment,forward_us,backward_us'"),
        ("segment,forward_us,backward_us\na,1\n", "two.csv:2: has 2 cells"),
        ("segment,forward_us,backward_us\na,1,-2\n", "two.csv:2: -2 is outside"),
        ("segment,forward_us,backward_us\na,0,0\n", "no time is above 0"),
    ],
)
def test_a_spoilt_profile_is_refused_by_line(text: str, problem: str, scenario: Path) -> None:
    (scenario.parent / "two.csv").write_text(text)
    with pytest.raises(ScenarioError, match=problem.replace("(", r"\(")):
        load(scenario, ["device.profile={file: two.csv}"])


def test_speed_divides_a_profile_and_a_resolved_scenario_keeps_it(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("segment,forward_us,backward_us\na,10,20\nb,30,40\n")
    loaded = load(scenario, ["training.model=cnn", "device.profile={file: two.csv}", "device.speed=2"])
    (tmp_path / "again.yaml").write_text(loaded.to_yaml())
    for each in (loaded, load(tmp_path / "again.yaml")):
        device = build_plan(each, "simulate").with_role("worker")[0].device
        assert device.step_time_s == pytest.approx(50e-6)
        assert sum(device.layers, ()) == pytest.approx((10e-6, 20e-6, 30e-6, 40e-6))
