"""How keys are cut for the servers above: by default where results stay the same, and never for whole-tensor norms."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from testbed.engine.slicing import slicer_of
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.policy.order import fifo
from testbed.scenario.load import load
from tests.engine.runs import MODELLED, THREE_SITES
from tests.engine.runs import run as simulated
from tests.faults.runs import run
from tests.for_each import for_each

SIZES = (100, 7, 30_000)
LARS = "optimizer={kind: lars, learning_rate: 0.1}"
SLICES = "order={kind: p3, slice: 400 bytes, overlap: none}"


def plan_of(*overrides: str) -> Plan:
    return build_plan(load(THREE_SITES, overrides), "simulate")


@for_each("overrides", [(SLICES,), ("shard=multigps",)])
def test_lars_takes_no_norms_of_slices(overrides: tuple[str, ...]) -> None:
    """Each slice would have a ratio of its own, and the result would depend on how tensors are cut."""
    with pytest.raises(ScenarioError, match=r"'lars' needs norms of whole tensors.*write 'at: worker'"):
        slicer_of(plan_of(LARS, *overrides))(SIZES, 2, None)
    for whole in ((), ("order={kind: p3, slice: 1 MB, overlap: none}",), ("shard={kind: multigps, bound: 100000}",)):
        assert len(slicer_of(plan_of(LARS, *whole))(SIZES, 2, None)) == 3
    at_worker = "optimizer={kind: lars, learning_rate: 0.1, at: worker}"
    for others in ("optimizer={kind: adam, learning_rate: 0.1}", at_worker):
        assert len(slicer_of(plan_of(others, *overrides))(SIZES, 2, None)) > 3


def test_a_run_says_so(tmp_path: Path) -> None:
    assert "'lars' needs norms of whole tensors" in str(run(tmp_path, LARS, SLICES).error)


@for_each(
    ("overrides", "cut"),
    [
        ((), True),
        (("codec=fp16",), True),
        (("codec=twobit",), True),
        (("sync={kind: hfa, k1: 2, k2: 2}", "optimizer={kind: sgd, at: worker}"), True),
        (("shard={kind: multigps, bound: 100000000}",), True),
        (("order={kind: fifo, slice: whole}",), False),
        (("order={kind: fifo, slice: auto}",), True),
        (("codec={tier1: none, tier2: topk}",), False),
        (("codec={tier1: fp16, tier2: mpq}",), False),
        (("sync=mixedsync",), False),
        (("overlay={tier1: star, tier2: tree}",), False),
        ((LARS,), False),
        (("order=dgt",), False),
    ],
)
def test_large_keys_are_cut_where_that_leaves_results_as_they_are(overrides: tuple[str, ...], cut: bool) -> None:
    sizes = (100, 3_000_000)
    slices = slicer_of(plan_of(*overrides))(sizes, 1, None)
    ends = [round(3_000_000 * number / 11) for number in range(12)] if cut else [0, 3_000_000]  # 11.4 times 1 MiB
    pieces = [(0, 0, 100), *((1, start, stop) for start, stop in pairwise(ends))]
    assert [(piece.key, piece.start, piece.stop) for piece in slices] == pieces


@for_each(("elements", "slices"), [(390_000, 1), (396_000, 2), (2_000_000, 8), (16_000_000, 32), (10**8, 95)])
def test_slices_are_a_32nd_of_the_model_between_bounds(elements: int, slices: int) -> None:
    assert len(slicer_of(plan_of())((elements,), 1, None)) == slices


def test_slices_are_those_of_every_back_end_and_rate() -> None:
    """A checkpoint names slices, and a run may be resumed elsewhere."""
    sizes = (8_000_000, 100)
    slices = slicer_of(plan_of())(sizes, 1, None)
    assert slicer_of(plan_of("topology.links[*].rate=10 Gbit/s"))(sizes, 1, None) == slices
    assert slicer_of(build_plan(load(THREE_SITES), "local"))(sizes, 1, None) == slices


def test_push_and_pull_overlap_on_a_full_duplex_link(tmp_path: Path) -> None:
    """A round takes as long as one direction of the WAN, its local step, and 10 %."""
    settings = (*MODELLED[:-1], "training.rounds=2", "training.evaluate_every=2")  # but whole keys
    model = "training.model={kind: declared, name: resnet18, buckets: 1}"
    ended = simulated(tmp_path, *settings, model).of_kind("round")
    first, last = (max(event["t"] for event in ended if event["round"] == round_) for round_ in (0, 1))
    model_bytes, step_s = 4 * 11_689_512, 1.0
    send_s = 8 * model_bytes / 20e6
    assert step_s + send_s < last - first < step_s + 1.1 * send_s


def test_a_model_of_any_size_has_few_slices() -> None:
    sizes = (100_000, 100_000_000, 2 << 30, 27_000_000_000)
    assert [fifo.auto_bytes(each) for each in sizes] == [1 << 20, 3_125_000, 4 << 20, 27_000_000_000 // 512]


def test_a_codec_that_a_script_chooses_decides_as_well() -> None:
    slices = slicer_of(plan_of())
    assert len(slices((3_000_000,), 1, "twobit")) == 11
    assert len(slices((3_000_000,), 1, "bisparse")) == 1


@for_each("codec", ["none", "twobit"])
def test_slices_end_with_the_bits_of_whole_keys_and_earlier(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo, "auto_bytes", lambda model_bytes: 40_000)
    settings = (f"codec={codec}", "training.model.layers=2", "training.rounds=3", "topology.lan.rate=20 Mbit/s")
    whole = simulated(tmp_path / "whole", *settings, "order={kind: fifo, slice: whole}")
    cut = simulated(tmp_path / "cut", *settings)
    assert cut.hashes() == whole.hashes()
    assert max(event["t"] for event in cut.of_kind("round")) < max(event["t"] for event in whole.of_kind("round"))
