"""The error map of simulated rounds: which row a Plan has, and what comes of it in results."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed.plan.build import build_plan
from testbed.results.summary import read_result
from testbed.scenario import loads
from testbed.simulation.prediction_error import DOUBTED, FAST, SHARED, USUAL, contested, error_of, measured, regime_of

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
        (("overlay={tier1: star, tier2: netstorm}",), SHARED),
        (("overlay={tier1: star, tier2: tree}",), USUAL),
        (("paradigm=ps",), SHARED),
        (("paradigm=gossip",), SHARED),
        (("paradigm=ps", "topology.data_centers[*].workers=1"), USUAL),
        (("sync=tap",), USUAL),
        (("links[0].rate=1 Gbit/s",), USUAL),
        (("links[0].rate=2 Gbit/s",), FAST),
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
    assert error_of(plan_of("links[0].rate=2 Gbit/s")) is None
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


CHAIN = """
version: 1
name: chain
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}, {name: c, workers: 1}]
  links:
    - {between: [a, b], rate: 10 Mbit/s, delay: 20 ms, queue: 16 KiB}
    - {between: [b, c], rate: 100 Mbit/s, delay: 5 ms, queue: 1 MiB}
training: {model: {kind: mlp, hidden: 512}, data: digits, batch: 8, rounds: 3, evaluate_every: 3}
device: {step_time: 10 ms}
"""


def test_a_link_is_contested_if_it_drops_packets_of_several_connections() -> None:
    plan = build_plan(loads(CHAIN))
    both = [("a/global0", "b/server0"), ("a/global0", "c/server0")]
    assert contested(plan, ["a>b", "b>c"], both) == ["a>b"]
    assert contested(plan, ["a>b"], both[:1]) == []
    assert contested(plan, [], both) == []


def test_a_run_is_one_draw_where_connections_lose_packets_at_the_same_link(tmp_path: Path) -> None:
    """With a queue that holds all that is sent, and with a path for each connection, no chance is at work."""
    roomy = ["topology.links[0].queue=4 MiB"]
    apart = ["topology.links[1]={between: [a, c], rate: 10 Mbit/s, delay: 20 ms, queue: 16 KiB}"]
    for name, changes, share in (("contested", [], 0.2), ("roomy", roomy, 0.049), ("apart", apart, 0.049)):
        run = testbed.run(loads(CHAIN, overrides=changes), out=tmp_path / name, progress=False)
        result = read_result(run.path / "result.json")
        assert result["round_s"]["high"] == pytest.approx(result["round_time_s"] / (1 - share), abs=1e-5)
        told = [note for note in result["fidelity"]["notes"] if "one draw" in note]
        assert len(told) == (name == "contested")
