"""The error map of simulated rounds: which row a Plan has, and what comes of it in results."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed.plan.build import build_plan
from testbed.results.summary import read_result
from testbed.scenario import loads
from testbed.simulation.prediction_error import DOUBTED, SHARED, USUAL, error_of, measured, regime_of

ROOT = Path(__file__).parents[2]
TEXT = """
version: 1
name: error
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 2}, {name: b, workers: 2}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 8, rounds: 2, evaluate_every: 2}
device: {step_time: 10 ms}
"""


def plan_of(*changes: str):  # type: ignore[no-untyped-def]
    return build_plan(loads(TEXT, "error.yaml", changes))


@pytest.mark.parametrize(
    ("changes", "regime"),
    [
        ((), USUAL),
        (("overlay=tsengine",), SHARED),
        (("paradigm=ps",), SHARED),
        (("paradigm=gossip",), SHARED),
        (("paradigm=ps", "topology.data_centers[*].workers=1"), USUAL),
        (("sync=tap",), USUAL),
    ],
)
def test_the_regime_of_a_plan(changes: tuple[str, ...], regime: str) -> None:
    assert regime_of(plan_of(*changes)) == regime


def test_a_doubt_widens_what_flows_claim() -> None:
    plan = plan_of("simulation.network=flows")
    doubted = error_of(plan, doubted=True)
    usual = error_of(plan)
    assert regime_of(plan, doubted=True) == DOUBTED
    assert usual is not None and doubted is not None and doubted.within_95 > usual.within_95


def test_nothing_is_claimed_of_what_was_never_measured() -> None:
    assert error_of(plan_of("transport.congestion_control=reno")) is None
    assert error_of(plan_of("simulation.network=ideal")) is None
    assert error_of(plan_of("run.on=emulate")) is None
    shared = plan_of("simulation.network=flows", "paradigm=ps")
    assert error_of(shared) is None, (
        "flows with shared queues were not measured: the usual row claims too much for them"
    )


def test_every_row_names_a_document_that_has_its_numbers() -> None:
    for error in measured().values():
        document = (ROOT / error.source.partition(":")[0]).read_text(encoding="utf-8")
        assert f"{100 * error.within_95:g} %" in document or f"| {100 * error.within_95:g} % |" in document, error
        assert 0 < error.median < error.within_95 < 1


def test_a_result_has_the_interval_of_its_rounds(tmp_path: Path) -> None:
    run = testbed.run(loads(TEXT), out=tmp_path / "run", progress=False)
    result = read_result(run.path / "result.json")
    mean_s = result["round_time_s"]
    assert result["round_s"] == {
        "mean": mean_s,
        "low": pytest.approx(mean_s / 1.049, abs=1e-6),
        "high": pytest.approx(mean_s / 0.951, abs=1e-6),
    }
