"""Workers that sum below their local server: the mathematics of a server's sum, and the bytes of a chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.engine import sync_setup
from testbed.engine.aggregation import merge_notes
from testbed.engine.collectives import inside
from testbed.plan.build import build_plan
from testbed.policy.collective.tree import chain_broadcast, chain_reduce
from testbed.scenario.load import load
from tests.engine.runs import MODELLED, THREE_SITES, Simulated, run
from tests.for_each import for_each

RING = "paradigm={kind: hips, inside: ring}"
ROUNDS = 4
SMALL = (
    "training.model={kind: mlp, hidden: 24}",
    f"training.rounds={ROUNDS}",
    "data_centers[hub].workers=2",
    "training.evaluate_every=2",
    "device.step_time=20 ms",
)
ELEMENTS = 64 * 24 + 24 + 24 * 10 + 10
AT_WORKERS = "optimizer={kind: adam, at: worker}"
TECHNIQUES: dict[str, tuple[str, ...]] = {
    "adam": ("optimizer={kind: adam, learning_rate: 0.01}",),
    "at workers": (AT_WORKERS,),
    "hfa": ("sync={kind: hfa, k1: 2, k2: 2}", AT_WORKERS, "sync.weights=sample", "training.split=dirichlet"),
    "diloco": ("sync={kind: diloco, h: 2}", AT_WORKERS),
    "asynchronous above": ("sync={tier1: fsa, tier2: mixedsync}",),
    "top-k above": ("codec={tier1: none, tier2: {kind: topk, bound: 100}}",),
    "slices": ("order={kind: p3, slice: 2 KB, overlap: none}",),
    "two servers": ("data_centers[hub].global_servers=2",),
    "loss at the sender": ("order={kind: dgt, block: 512 bytes, adaptive: true}", "links[*].loss=1 %"),
    "overlay above": ("overlay={tier1: star, tier2: {kind: tree, chunk: 2 KB}}",),
    "stops at the target": ("training.target_accuracy=0.2", "training.rounds=30"),
}


def transfers(run_: Simulated, message: str, source: str = "", target: str = "") -> list[int]:
    """Payload bytes of messages during training."""
    found = [event for event in run_.of_kind("transfer") if event["message"] == message and event["round"] >= 0]
    return [e["payload_bytes"] for e in found if e["source"].startswith(source) and e["node"].startswith(target)]


@pytest.mark.sample(2)  # of 11, which take 8 s
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_two_workers_end_with_the_bits_of_a_server(technique: str, tmp_path: Path) -> None:
    """A sum of two has one order. Where time decides who comes first, or what is lost, workers are compared alone."""
    settings = (*SMALL, *TECHNIQUES[technique])
    at_servers, summed = run(tmp_path / "servers", *settings), run(tmp_path / "ring", *settings, RING)
    ends = {event["node"]: event for event in summed.of_kind("final") if event["role"] == "worker"}
    expected = {event["node"]: event for event in at_servers.of_kind("final") if event["role"] == "worker"}
    assert ends.keys() == expected.keys()
    if technique in ("asynchronous above", "loss at the sender"):
        for site in ("hub", "east"):
            assert len({ends[f"{site}/worker{number}"]["parameters_sha256"] for number in range(2)}) == 1
        return
    for name, end in ends.items():
        assert (end["parameters_sha256"], end["rounds"]) == (
            expected[name]["parameters_sha256"],
            expected[name]["rounds"],
        )


def test_four_workers_end_with_equal_bits_close_to_those_of_a_server(tmp_path: Path) -> None:
    settings = (*SMALL, "data_centers[east].workers=4")
    at_server, summed = run(tmp_path / "servers", *settings), run(tmp_path / "ring", *settings, RING)
    assert len(summed.hashes()) == 1
    difference = (summed.parameters("east/worker3") - at_server.parameters("east/worker3")).abs().max()
    assert float(difference) < 1e-6, "four gradients of less than 1, in another order, ROUNDS times"


def test_buckets_keep_the_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (*SMALL, "data_centers[east].workers=4", RING)
    whole = run(tmp_path / "whole", *settings)
    monkeypatch.setattr(inside, "BUCKET_BYTES", 1000)
    assert run(tmp_path / "cut", *settings).hashes() == whole.hashes()


def test_each_worker_sends_a_tensor_once_up_and_once_down(tmp_path: Path) -> None:
    """Worker 3 is last in the chain; only worker 0 talks to the server, with one push a key and round."""
    summed = run(tmp_path, *SMALL, "data_centers[east].workers=4", RING)
    dense = 4 * ELEMENTS * ROUNDS
    pushes = Counter(event["source"] for event in summed.of_kind("transfer") if event["message"] == "push")
    assert {source for source in pushes if source.startswith("east/w")} == {"east/worker0"}
    assert sum(transfers(summed, "push", "east/worker0")) == dense
    told = transfers(summed, "collective", "east/worker0", "east/worker2")  # a tree of four: 0 to 1 and 2, 1 to 3
    assert len(told) == ROUNDS and max(told) < 100
    for number, towards in ((1, 0), (2, 1), (3, 2)):
        assert sum(transfers(summed, "collective", f"east/worker{number}", f"east/worker{towards}")) == dense
    assert sum(transfers(summed, "collective", "east/worker2", "east/worker3")) == dense
    assert sum(transfers(summed, "collective", "east/worker0", "east/worker1")) == dense + sum(told)


def test_first_values_come_from_the_first_worker_of_all(tmp_path: Path) -> None:
    """One pull a data centre; all begin with equal bits, or they would not end with them."""
    summed = run(tmp_path, *SMALL, RING)
    pulls = {event["source"] for event in summed.of_kind("transfer") if event["message"] == "pull"}
    assert {name for name in pulls if "worker" in name} == {"hub/worker0", "east/worker0", "west/worker0"}


def test_sizes_without_numbers_are_summed_as_well(tmp_path: Path) -> None:
    """Nothing is folded, as each worker has a place in the chain."""
    settings = (*MODELLED, "training.rounds=2", "data_centers[east].workers=3", RING)
    modelled = run(tmp_path, *settings, "training.target_accuracy=null")
    assert not any(event.get("stands_for") for event in modelled.of_kind("start"))
    nbytes = sum(transfers(modelled, "push", "west/worker0"))
    assert sum(transfers(modelled, "collective", "east/worker2", "east/worker1")) == nbytes


def test_the_losses_of_all_travel_with_the_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that follows the loss asks for the mean over all workers, whoever pushes."""
    merged: list[Sequence[Mapping[str, Any]]] = []
    monkeypatch.setattr(inside, "merge_notes", lambda notes: merged.append(notes) or merge_notes(notes))
    run(tmp_path, *SMALL, "order={kind: dgt, block: 512 bytes, adaptive: true}", RING)
    assert len(merged) == 4 * ROUNDS
    assert all(len({note["loss"] for note in notes}) == 2 for notes in merged)


def test_the_first_worker_contributes_for_all() -> None:
    plan = build_plan(load(THREE_SITES, (*SMALL, RING)), "simulate")
    assert sync_setup.contributors(plan, plan.node("east/server0")) == ("east/worker0",)
    assert len(sync_setup.contributors(plan, plan.with_role("global_server")[0])) == 3


@for_each("size", [1, 2, 5])
@for_each("segments", [1, 3])
def test_a_chain_moves_a_buffer_once_between_neighbours(size: int, segments: int) -> None:
    for make, towards in ((chain_reduce, -1), (chain_broadcast, 1)):
        for rank in range(size):
            schedule = make(rank, size, segments)
            sends = [send for pipe in schedule.pipes for step in pipe for send in step.sends]
            peer = rank + towards
            assert {send.peer for send in sends} == ({peer} if 0 <= peer < size else set())
            assert sorted(chunk for send in sends for chunk in range(send.start, send.stop)) == (
                list(range(segments)) if sends else []
            )
