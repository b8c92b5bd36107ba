"""Algorithms that must be each other's special cases, on real training (a small perceptron, digits, virtual time)."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.runs import Simulated, run
from tests.for_each import for_each

SMALL = ("training.model={kind: mlp, hidden: 8}", "training.rounds=4", "training.evaluate_every=4")
SGD = "optimizer={kind: sgd, learning_rate: 0.05}"


def small(directory: Path, *overrides: str) -> Simulated:
    return run(directory, *SMALL, *overrides)


def near(one: Simulated, other: Simulated) -> bool:
    worker = "east/worker0"
    return torch.allclose(one.parameters(worker), other.parameters(worker), atol=2e-6)


def local(rate: float) -> str:
    return f"optimizer={{kind: sgd, learning_rate: {rate}, at: worker}}"


@for_each("at", ["global", "worker"])
def test_one_tier_computes_what_two_do(at: str, tmp_path: Path) -> None:
    optimizer = f"optimizer={{kind: sgd, learning_rate: 0.05, at: {at}}}"
    one, two = small(tmp_path / "1", "paradigm=ps", optimizer), small(tmp_path / "2", optimizer)
    assert near(one, two)
    assert len(one.hashes()) == 1


@for_each("paradigm", ["hips", "ps"])
def test_ssp_without_a_bound_is_tap(paradigm: str, tmp_path: Path) -> None:
    common = (f"paradigm={paradigm}", SGD, "device.variation=50 %")
    ssp = small(tmp_path / "1", "sync={kind: ssp, staleness: 1000000}", *common)
    tap = small(tmp_path / "2", "sync=tap", *common)
    order = [[(e["node"], e["key"], e["contributors"]) for e in each.of_kind("update")] for each in (ssp, tap)]
    assert order[0] == order[1]
    assert torch.equal(ssp.parameters("east/worker0"), tap.parameters("east/worker0"))


def test_diloco_at_rate_1_without_momentum_is_averaging(tmp_path: Path) -> None:
    outer = "sync={kind: diloco, h: 3, outer_learning_rate: 1, outer_momentum: 0}"
    diloco = small(tmp_path / "1", outer, local(0.1))
    hfa = small(tmp_path / "2", "sync={kind: hfa, k1: 3, k2: 1, weights: worker}", local(0.1))
    assert near(diloco, hfa)


@for_each(("scope", "balanced"), [("esync", {"hub", "east0", "west"}), ("{tier1: esync, tier2: fsa}", {"east0"})])
def test_scopes_of_esync(scope: str, balanced: set[str], tmp_path: Path) -> None:
    """Row 30: the slowest does one step; who waits for it does more: in its data centre, or everywhere."""
    slow = "data_centers[east].worker_devices={worker1: {speed: 0.2}}"
    done = small(tmp_path, f"sync={scope}", local(0.05), slow)
    names = {"hub/worker0": "hub", "east/worker0": "east0", "east/worker1": "east1", "west/worker0": "west"}
    most = {names[node]: max(e["steps"] for e in done.of_kind("round", node)) for node in names}
    assert {name for name, steps in most.items() if steps >= 4} == balanced
    assert most["east1"] == 1
    assert len(done.hashes()) == 1  # row 32: every round ends with one model


def test_dcasgd_without_compensation_is_sgd(tmp_path: Path) -> None:
    """Row 22, asynchronously, to the bit."""
    common = ("sync=mixedsync", "device.variation=50 %")
    dc = small(tmp_path / "1", "optimizer={kind: dcasgd, learning_rate: 0.05, compensation: 0}", *common)
    sgd = small(tmp_path / "2", SGD, *common)
    assert torch.equal(dc.parameters("east/worker0"), sgd.parameters("east/worker0"))
    assert max(event["staleness"] for event in sgd.of_kind("update")) > 0


def test_wan_and_lan_exchanges_of_hfa(tmp_path: Path) -> None:
    """Row 26: per key, floor(rounds / K1) over the LAN and floor(rounds / (K1 K2)) over the WAN; row 28."""
    done = run(
        tmp_path,
        *SMALL[:1],
        "training.rounds=7",
        "training.evaluate_every=7",
        "sync={kind: hfa, k1: 2, k2: 3}",
        local(0.05),
    )
    pushes = [event for event in done.of_kind("transfer") if event["message"] == "push"]
    up = [event["round"] for event in pushes if event["source"] == "west/server0" and event["key"] == 0]
    inside = [event for event in pushes if event["source"] == "west/worker0" and event["key"] == 0]
    assert (up, len(inside)) == ([2, 5], 7)


def test_wan_bytes_of_fsa_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    """Row 12."""

    def wan(directory: Path, workers: int) -> int:
        done = small(directory, f"data_centers[east].workers={workers}")
        sent = [event for event in done.of_kind("transfer") if event["source"] == "east/server0"]
        return sum(event["payload_bytes"] for event in sent if event["message"] == "push")

    assert wan(tmp_path / "1", 1) == wan(tmp_path / "2", 3) > 0


def test_the_record_says_who_waited_for_a_slow_party(tmp_path: Path) -> None:
    fsa = small(tmp_path, SGD, "data_centers[west].device.speed=0.1")
    held = [event for event in fsa.of_kind("held", "hub/global0") if event["round"] > 0]
    assert {event["by"] for event in held} == {"west/server0"}
    assert {event["member"] for event in held} == {"hub/server0", "east/server0"}


def test_a_target_that_is_reached_between_two_wan_rounds_ends_the_run_at_the_next(tmp_path: Path) -> None:
    """Only one data centre hears of it at once; were it to stop alone, the others would wait for it for ever."""
    settings = (
        "training.target_accuracy=0.2",
        "training.evaluate_every=1",
        "training.rounds=60",
        "sync={kind: hfa, k1: 2, k2: 3}",
        "optimizer={kind: sgd, learning_rate: 0.1, at: worker}",
        "training.model={kind: mlp, hidden: 16}",
    )
    result = run(tmp_path, *settings)
    (rounds,) = {event["rounds"] for event in result.of_kind("final") if event["role"] == "worker"}
    assert rounds < 60 and rounds % 3 == 0
    assert len(result.hashes()) == 1
