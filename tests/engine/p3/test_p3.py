"""P3: the same bits, sooner. Slices overtake on every hop, and layers begin as their values come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import run_scenario
from tests.engine.runs import MODELLED, THREE_SITES, Simulated, run
from tests.for_each import for_each

FIFO, FIFO_LAYERS = "order=fifo", "order={kind: fifo, overlap: layers}"
P3 = "order={kind: p3, slice: 2 MB}"
SMALL_SLICES = "order={kind: p3, slice: 4 KB}"


ORDERS = (FIFO_LAYERS, "order=p3", SMALL_SLICES, "order={kind: p3, overlap: none}")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return run(tmp_path_factory.mktemp("plain") / "run", FIFO)


@pytest.mark.sample(1)  # of 4, which take 3 s
@pytest.mark.parametrize("order", ORDERS)
def test_numerics_are_unchanged_bit_for_bit(tmp_path: Path, plain: Simulated, order: str) -> None:
    other = run(tmp_path, order)
    assert len(plain.hashes()) == 1
    assert other.hashes() == plain.hashes()
    losses = [[event["loss"] for event in each.of_kind("round", "east/worker1")] for each in (plain, other)]
    assert losses[0] == losses[1]
    scores = [[event["accuracy"] for event in each.of_kind("evaluate")] for each in (plain, other)]
    assert scores[0] == scores[1] and scores[0]


@for_each("order", [FIFO_LAYERS, "order=p3"])
def test_staleness_of_zero_ends_every_round(tmp_path: Path, order: str) -> None:
    done = run(tmp_path, order, "sync={tier1: fsa, tier2: {kind: ssp, staleness: 0}}")
    assert [event["round"] for event in done.of_kind("round", "west/worker0")] == list(range(4))


@pytest.mark.slow  # 4 s
def test_real_processes_end_with_the_same_bits(tmp_path: Path) -> None:
    settings = ("order={kind: p3, slice: 20 KB}", "device.step_time=20 ms")
    simulated = run(tmp_path / "simulated", *settings)
    real = run_scenario(tmp_path / "local", "local", *settings, scenario=THREE_SITES)
    assert real.outcome.status == "done", real.outcome.message
    assert real.hashes("worker") | real.hashes("server") == simulated.hashes()


def arrivals_on_the_wan(result: Simulated, message: str, node: str) -> list[tuple[int, str]]:
    """Keys of the third round in the order of arrival, and who sent them."""
    arrived = [event for event in result.of_kind("transfer", node) if event["message"] == message]
    return [(e["key"], e["source"]) for e in arrived if e["tier"] == "wan" and e["round"] == 2]


UP = ("push", "hub/global0", ("topology.links[1].rate=100 Mbit/s", "topology.links[1].reverse={rate: 2 Mbit/s}"))
DOWN = ("value", "west/server0", ("topology.links[1].rate=2 Mbit/s", "topology.links[1].reverse={rate: 100 Mbit/s}"))


UNBUFFERED = (
    "training.rounds=3",
    "training.model.layers=2",
    "transport.unsent_limit=16 KiB",
    "topology.links[1].queue=16 KiB",
)


@pytest.mark.sample(1)  # of 2, which take 5 s
@pytest.mark.parametrize(("message", "node", "slow"), [UP, DOWN])
def test_urgent_slices_overtake_on_the_wan_both_ways(
    tmp_path: Path, message: str, node: str, slow: tuple[str, str]
) -> None:
    """Row 59, 60, 62: where one direction is slow, the first layer's slices pass those that were sent before them."""
    sliced = FIFO_LAYERS.replace("}", ", slice: 4 KB}")
    fifo, p3 = (
        arrivals_on_the_wan(run(tmp_path / name, order, *slow, *UNBUFFERED), message, node)
        for name, order in (("fifo", sliced), ("p3", SMALL_SLICES))
    )
    if message == "push":
        fifo, p3 = ([key for key, source in keys if source == "west/server0"] for keys in (fifo, p3))
    else:
        fifo, p3 = ([key for key, _ in keys] for keys in (fifo, p3))
    assert sorted(fifo) == sorted(p3) == list(range(len(p3)))
    assert fifo.index(0) > len(fifo) / 2  # the first layer's gradient is made last
    assert p3.index(0) < len(p3) / 2


@pytest.mark.slow  # 3 s
def test_slices_of_one_tensor_keep_their_order(tmp_path: Path) -> None:
    """FIFO within equal priority: a worker's slices of the largest tensor arrive in the order of their positions."""
    result = run(tmp_path, SMALL_SLICES, "topology.lan.rate=20 Mbit/s", "training.model=cnn")
    keys = [
        event["key"]
        for event in result.of_kind("transfer", "west/server0")
        if event["message"] == "push" and event["source"] == "west/worker0" and event["round"] == 2
    ]
    assert len(set(keys)) == len(keys)
    largest = [key for key in keys if 14 < key < 45]  # inside one tensor, and inside the next
    assert largest[:20] == sorted(largest[:20])


def test_the_first_layer_starts_before_the_last_layers_values_are_here(tmp_path: Path) -> None:
    """Row 61: one round trip per key, and the next forward pass begins with the first layer's."""
    result = run(tmp_path, *MODELLED, "topology.links[*].rate=200 Mbit/s", P3)
    worker = "west/worker0"
    begins = min(event["t0"] for event in result.of_kind("compute", worker) if event["round"] == 3)
    values = [event for event in result.of_kind("transfer", worker) if event["message"] == "value"]
    ends = max(event["t"] for event in values if event["round"] == 2)
    assert begins < ends
    pulls = [event for event in result.of_kind("transfer") if event["message"] == "pull" and event["round"] >= 0]
    assert not pulls


def test_segments_take_exactly_the_time_of_a_step(tmp_path: Path) -> None:
    result = run(tmp_path, "order=p3", "training.model=cnn")
    for round_ in range(4):
        steps = [event for event in result.of_kind("compute", "east/worker0") if event["round"] == round_]
        assert len(steps) == 10  # five segments, there and back
        assert sum(event["modelled_s"] for event in steps) == pytest.approx(0.1, rel=1e-9)
