"""Golden values of every synchronisation algorithm: workers with known gradients, through the whole engine.

Three data centres: hub with worker 0 (which is the master), east with workers 1 and 2, west with worker 3. All begin
with the master's values, which are 0. "Row n" is a row of GeoMX' observable behaviours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from testbed.training.optimizers import KeyOptimizer
from tests.engine.runs import run as simulated
from tests.engine.sync.constant import everywhere, the_number, use_constants
from tests.for_each import for_each

WORKERS = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0")
SGD = "optimizer={kind: sgd, learning_rate: 1}"
LOCAL = "optimizer={kind: sgd, learning_rate: 1, at: worker}"
ROUNDS = "training.rounds=3"
FAST = ("device.step_time=2 ms", "training.evaluate_every=3")


def power_of_two(rank: int, values: list[torch.Tensor]) -> float:
    return 2.0**rank


def towards(*targets: float) -> Any:
    """One step of SGD at rate 1 adds the worker's number."""
    return lambda rank, values: -targets[rank]


@for_each("world", ["virtual", "sockets"])
@for_each("paradigm", ["hips", "ps"])
@for_each("at", ["global", "worker"])
def test_fsa_sums_and_does_not_average(
    world: str, paradigm: str, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 7, 9, 10: w = w0 - lr * sum of all gradients, the same at all workers, from the master's first values."""
    use_constants(monkeypatch, power_of_two)
    optimizer = f"optimizer={{kind: sgd, learning_rate: 1, at: {at}}}"
    results = everywhere(world, tmp_path, f"paradigm={paradigm}", optimizer, ROUNDS, *FAST).results
    summed = 15 if at == "global" else 15 / 4  # an optimizer of the worker's own takes the mean
    assert {the_number(results[name]) for name in WORKERS} == {-3 * summed}


@for_each("world", ["virtual", "sockets"])
@for_each("paradigm", ["hips", "ps"])
def test_a_master_that_does_not_train_contributes_nothing(
    world: str, paradigm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 15 and 16: its first values count, its gradients do not, and the run ends well."""
    use_constants(monkeypatch, lambda rank, values: [1e6, 2.0, 4.0, 8.0][rank])
    overrides = ("data_centers[hub].workers=0", f"paradigm={paradigm}", SGD, ROUNDS, *FAST)
    results = everywhere(world, tmp_path, *overrides).results
    assert {the_number(results[name]) for name in WORKERS[1:]} == {-3 * 14.0}


@for_each("world", ["virtual", "sockets"])
def test_local_servers_hold_no_optimizer(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 14: one optimizer per key, at the top."""
    made: list[int] = []

    class Counted(KeyOptimizer):
        def __init__(self, *arguments: Any) -> None:
            made.append(1)
            super().__init__(*arguments)

    use_constants(monkeypatch, power_of_two)
    monkeypatch.setattr("testbed.engine.root_store.KeyOptimizer", Counted)
    everywhere(world, tmp_path, "optimizer={kind: adam, learning_rate: 0.1}", ROUNDS, *FAST)
    assert len(made) == 2


@for_each("world", ["virtual", "sockets"])
def test_hfa_golden(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 25, on the data centres of this file: {1}, {3, 5} and {9}: means 1, 4 and 9, and over the WAN 14/3."""
    use_constants(monkeypatch, towards(1, 3, 5, 9))
    one_round = ("training.rounds=1", "training.evaluate_every=1", "device.step_time=2 ms", LOCAL)
    inside = everywhere(world, tmp_path / "a", "sync={kind: hfa, k1: 1, k2: 2}", *one_round).results
    assert [the_number(inside[name]) for name in WORKERS] == [1, 4, 4, 9]
    across = everywhere(world, tmp_path / "b", "sync={kind: hfa, k1: 1, k2: 1}", *one_round).results
    assert [the_number(across[name]) for name in WORKERS] == [pytest.approx(14 / 3)] * 4


def test_hfa_of_the_original_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 25: parties {1, 3} and {5, 7} from 0 give 4."""
    use_constants(monkeypatch, towards(0, 1, 3, 5, 7))
    sites = ("data_centers[hub].workers=0", "data_centers[west].workers=2", LOCAL, "training.rounds=1")
    run = simulated(tmp_path / "a", "sync={kind: hfa, k1: 1, k2: 1}", "training.evaluate_every=1", *sites)
    assert {the_number(run.results[name]) for name in ("east/worker0", "west/worker1")} == {4.0}
    inside = simulated(tmp_path / "b", "sync={kind: hfa, k1: 1, k2: 2}", "training.evaluate_every=1", *sites).results
    assert [the_number(inside[name]) for name in ("east/worker0", "west/worker1")] == [2.0, 6.0]


@for_each(("weights", "expected"), [("party", 14 / 3), ("worker", 18 / 4)])
@for_each("paradigm", ["hips", "ps"])
@for_each(
    "sync", ["hfa, k1: 1, k2: 1", "diloco, h: 1, outer_learning_rate: 1, outer_momentum: 0", "esync, fixed_steps: 1"]
)
def test_weights_of_a_mean(
    sync: str, paradigm: str, weights: str, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 29, and row 31 (the mean of the changes, at rate 1): the same on two tiers and on one."""
    use_constants(monkeypatch, towards(1, 3, 5, 9))
    chosen = f"sync={{kind: {sync}, weights: {weights}}}"
    run = simulated(tmp_path, chosen, f"paradigm={paradigm}", LOCAL, "training.rounds=1", "training.evaluate_every=1")
    assert [the_number(run.results[name]) for name in WORKERS] == [pytest.approx(expected)] * 4


@for_each("paradigm", ["hips", "ps"])
def test_weights_by_samples(paradigm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 29: every sample counts the same, wherever it lies."""
    use_constants(monkeypatch, towards(1, 3, 5, 9))
    monkeypatch.setattr("testbed.engine.aggregation_weights.samples_of", lambda plan: [100, 200, 300, 400])
    run = simulated(
        tmp_path,
        "sync={kind: hfa, k1: 1, k2: 1, weights: sample}",
        f"paradigm={paradigm}",
        LOCAL,
        "training.rounds=1",
        "training.evaluate_every=1",
    )
    mean = (100 * 1 + 200 * 3 + 300 * 5 + 400 * 9) / 1000
    assert [the_number(run.results[name]) for name in WORKERS] == [pytest.approx(mean)] * 4


@for_each("world", ["virtual", "sockets"])
def test_dilocos_outer_step_has_nesterovs_momentum(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers move by 4.5 in the mean. m = 4.5, step 0.7 · (4.5 + 0.9 m); then m = 4.5 + 0.9 · 4.5, likewise."""
    use_constants(monkeypatch, towards(1, 3, 5, 9))
    two = ("training.rounds=2", "training.evaluate_every=2", "device.step_time=2 ms", LOCAL)
    run = everywhere(world, tmp_path, "sync={kind: diloco, h: 1}", *two)
    expected = 0.7 * (4.5 + 0.9 * 4.5) + 0.7 * (4.5 + 0.9 * 8.55)
    assert [the_number(run.results[name]) for name in WORKERS] == [pytest.approx(expected)] * 4


ASYNCHRONOUS = [
    ("hips", "mixedsync"),
    ("hips", "tap"),
    ("hips", "{kind: ssp, staleness: 1}"),
    ("hips", "{tier1: ssp, tier2: tap}"),
    ("ps", "tap"),
    ("ps", "{kind: ssp, staleness: 0}"),
    ("ps", "{kind: ssp, staleness: 2}"),
    ("ps", "mixedsync"),
]


@pytest.mark.parametrize(("paradigm", "sync"), ASYNCHRONOUS)
@given(seed=st.integers(0, 10**6), speed=st.floats(0.05, 1))
@settings(
    max_examples=3,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_gradient_is_lost_or_counted_twice(
    paradigm: str, sync: str, seed: int, speed: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows 18-20, in any schedule of arrivals: the sum of all that was pushed is what the values have moved."""
    with pytest.MonkeyPatch.context() as patch:
        use_constants(patch, power_of_two)
        run = simulated(
            tmp_path_factory.mktemp("run"),
            f"paradigm={paradigm}",
            f"sync={sync}",
            SGD,
            "training.rounds=4",
            f"seed={seed}",
            "device.variation=80 %",
            f"data_centers[east].device.speed={speed:.3f}",
        )
    last = max(run.of_kind("update"), key=lambda event: (event["t"], event["version"]))
    pushes = sum(
        event["message"] == "push" and event["target"] == "hub/global0" and event["key"] == 0
        for event in run.of_kind("transfer")
    )
    assert last["version"] == pushes, "one optimizer step for each push"
    (final,) = {event["parameters_sha256"] for event in run.of_kind("final") if event["role"] == "global_server"}
    expected = torch.full((5,), -sum(2.0 ** WORKERS.index(event["node"]) for event in run.of_kind("round")))
    from testbed.training.learner import values_sha256

    assert final == values_sha256([expected[:3], expected[3:]])


@for_each(("paradigm", "sync"), [("hips", "mixedsync"), ("ps", "tap")])
@for_each("momentum", [0, 0.5])
def test_dcasgd_compensates_from_what_each_member_last_pulled(
    paradigm: str, sync: str, momentum: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 22 and 23: replayed, update by update, by the formula of the paper with one backup per member."""
    use_constants(monkeypatch, lambda rank, values: 0.5 + 0.1 * rank)
    run = simulated(
        tmp_path,
        f"paradigm={paradigm}",
        f"sync={sync}",
        "training.rounds=5",
        "device.variation=60 %",
        f"optimizer={{kind: dcasgd, learning_rate: 0.1, compensation: 0.4, momentum: {momentum}}}",
        "device.step_time=10 ms",
        "data_centers[west].device.speed=0.4",
    )
    updates = sorted((e for e in run.of_kind("update") if e["key"] == 0), key=lambda event: event["version"])
    gradients = {"hub": [0.5], "east": [0.6, 0.7], "west": [0.8]}
    per_worker = dict(zip(WORKERS, (0.5, 0.6, 0.7, 0.8), strict=True))
    history, velocity = [0.0], 0.0
    for update in updates:
        (member,) = update["contributors"]
        gradient = per_worker[member] if member in per_worker else sum(gradients[member.split("/")[0]])
        backup = history[update["version"] - 1 - update["staleness"]]
        gradient += 0.4 * gradient * gradient * (history[-1] - backup)
        velocity = momentum * velocity + gradient
        history.append(history[-1] - 0.1 * velocity)
    assert any(update["staleness"] > 0 for update in updates)
    assert the_number([run.results[WORKERS[0]][0]]) in [pytest.approx(value, rel=1e-5) for value in history]
    (holder,) = [e for e in run.of_kind("final") if e["role"] == "global_server"]
    assert holder["parameters_sha256"] is not None
    slowest = max(run.of_kind("round"), key=lambda event: event["t"])["node"]
    assert the_number([run.results[slowest][0]]) == pytest.approx(history[-1], rel=1e-5)
