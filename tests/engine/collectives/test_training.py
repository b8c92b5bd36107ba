"""Data-parallel training by all-reduce: the same as in one process, the same everywhere, whatever the algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.predict import LinkCost, finish_times_s
from testbed.policy.collective.ring import ring
from testbed.policy.collective.schedule import GroupShape
from testbed.scenario.load import load
from testbed.settings.job import Choice
from tests.end_to_end.reference import train_single_process
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import Runs, worlds
from tests.engine.runs import THREE_SITES, run
from tests.for_each import for_each

GROUPS = [2, 1, 2]


def final_of(runs: Runs, names: list[str]) -> set[str]:
    events = [event for name in names for event in runs.events(name) if event["kind"] == "final"]
    assert len(events) == len(names)
    return {event["parameters_sha256"] for event in events}


@pytest.mark.sample(2)  # of 6, which take 3 s
@pytest.mark.parametrize("algorithm", list(ALL_REDUCE)[1::2])  # all of them: tests/engine/matrix/test_every_kind.py
def test_equals_training_in_one_process(algorithm: str, tmp_path: Path) -> None:
    options = {"algorithm": algorithm, "bucket": 4000, "segments": 2}
    plan = serverless_plan(GROUPS, "allreduce", options)
    runs = worlds("virtual", tmp_path)
    results = run_plan(runs, plan)
    expected = train_single_process(plan, plan.training.rounds)
    for values in results.values():
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(values, expected, strict=True))
    assert len(final_of(runs, list(results))) == 1


@for_each("algorithm", list(ALL_REDUCE)[::6])
def test_pieces_keep_the_bits(algorithm: str, tmp_path: Path) -> None:
    hashes = set()
    for segments in (1, 3):
        plan = serverless_plan(GROUPS, "allreduce", {"algorithm": algorithm, "segments": segments}, rounds=3)
        runs = worlds("virtual", tmp_path / str(segments))
        hashes |= final_of(runs, list(run_plan(runs, plan)))
    assert len(hashes) == 1


def test_chunks_cross_a_wan_in_pieces_by_default(tmp_path: Path) -> None:
    messages, hashes = {}, set()
    for segments in (1, 0):
        model = Choice(kind="mlp", options={"hidden": 1024})
        plan = serverless_plan(GROUPS, "allreduce", {"algorithm": "ring", "segments": segments}, rounds=2, model=model)
        runs = worlds("virtual", tmp_path / str(segments))
        names = list(run_plan(runs, replace(plan, back_end="simulate")))  # loopback has no WAN
        hashes |= final_of(runs, names)
        mine = [event for event in runs.events(names[0]) if event["kind"] == "transfer" and event["round"] == 1]
        messages[segments] = len(mine)
    assert len(hashes) == 1
    elements = 64 * 1024 + 1024 + 1024 * 10 + 10
    assert messages == {1: 2 * 4, 0: 2 * 4 * (4 * elements // 5 // 16_000)}


def test_pieces_hide_the_delay_of_a_link() -> None:
    """A whole chunk takes as long as the delay; of eight pieces, others leave while the first is on its way."""
    link = LinkCost(0.1, 1e-6)

    def time_s(segments: int) -> float:
        schedules = [ring(GroupShape(5, segments=segments), rank) for rank in range(5)]
        return max(finish_times_s(schedules, 500_000, lambda a, b: link, link.beta_s))

    assert time_s(8) < 0.65 * time_s(1)


def test_two_rings_take_half_the_time_of_one_where_ports_are_no_bottleneck() -> None:
    link = LinkCost(0.001, 1e-6)

    def time_s(algorithm: str) -> float:
        schedules = [ALL_REDUCE[algorithm](GroupShape(5), rank) for rank in range(5)]
        return max(finish_times_s(schedules, 5_000_000, lambda a, b: link, 0.0))

    assert time_s("bidirectional_ring") == pytest.approx(time_s("ring") / 2, rel=0.05)


def test_summing_during_the_backward_pass_keeps_the_bits(tmp_path: Path) -> None:
    """And begins the sum of the last layers' bucket before the first layers' backward pass."""
    hashes, begun = set(), {}
    for overlap in ("after", "buckets"):
        plan = serverless_plan([2, 2], "allreduce", {"algorithm": "ring", "bucket": 1000, "overlap": overlap})
        runs = worlds("virtual", tmp_path / overlap)
        names = list(run_plan(runs, plan))
        hashes |= final_of(runs, names)
        mine = [event for event in runs.events(names[0]) if event.get("round") == 1]
        steps = [event["t"] for event in mine if event["kind"] == "compute" and event["work"] == "step"]
        begun[overlap] = min(event["t0"] for event in mine if event["kind"] == "transfer") - max(steps)
    assert len(hashes) == 1
    assert begun["buckets"] < begun["after"] - 0.001


@pytest.mark.sample(1)  # of 6, which take 6 s
@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "ring"},
        {"algorithm": "blueconnect", "bucket": 5000},
        {"algorithm": "butterfly", "segments": 3},
        {"algorithm": "hitopk", "density": 0.05, "bucket": 3000},
        {"algorithm": "flat_topk", "density": 0.05},
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)
def test_both_worlds_end_with_the_same_parameters(options: dict[str, object], tmp_path: Path) -> None:
    hashes = set()
    for kind in ("real", "virtual"):
        plan = serverless_plan([2, 2], "allreduce", options)
        runs = worlds(kind, tmp_path)
        results = run_plan(runs, plan)
        assert len(results) == 4
        hashes |= final_of(runs, list(results))
    assert len(hashes) == 1


def test_all_stop_when_one_has_reached_the_target(tmp_path: Path) -> None:
    plan = serverless_plan([1, 2], "allreduce", {}, rounds=1000, target_accuracy=0.5)
    runs = worlds("virtual", tmp_path)
    names = list(run_plan(runs, plan))
    finals = [event for name in names for event in runs.events(name) if event["kind"] == "final"]
    assert len({event["rounds"] for event in finals}) == 1
    assert finals[0]["rounds"] < 1000
    scores = [event for event in runs.events("a/worker0") if event["kind"] == "evaluate"]
    assert scores[-1]["accuracy"] >= 0.5


def test_half_precision_on_the_wire(tmp_path: Path) -> None:
    plan = serverless_plan([2, 2], "allreduce", {})
    plan = replace(plan, technique=replace(plan.technique, codec_tier2=Choice(kind="fp16")))
    runs = worlds("virtual", tmp_path)
    results = run_plan(runs, plan)
    assert len(final_of(runs, list(results))) == 1
    expected = train_single_process(plan, plan.training.rounds)
    pairs = list(zip(results["a/worker0"], expected, strict=True))
    assert all(torch.allclose(a, b, atol=0.01) for a, b in pairs)
    assert not all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)


def test_hitopk_needs_equal_data_centres(tmp_path: Path) -> None:
    plan = serverless_plan([2, 1], "allreduce", {"algorithm": "hitopk"})
    with pytest.raises(ScenarioError, match=r"a: 2, b: 1"):
        run_plan(worlds("virtual", tmp_path), plan)


def test_a_worker_that_does_not_train_gives_the_first_values(tmp_path: Path) -> None:
    plan = serverless_plan([2, 2], "allreduce", {}, rounds=2)
    nodes = tuple(replace(node, trains=node.name != "a/worker0") for node in plan.nodes)
    plan = replace(plan, nodes=nodes)
    runs = worlds("virtual", tmp_path)
    results = run_plan(runs, plan)
    trained = {name: values for name, values in results.items() if name != "a/worker0"}
    assert len(final_of(runs, list(trained))) == 1
    assert not torch.equal(results["a/worker0"][0], results["b/worker0"][0])


HALF_WITH_RESIDUAL = '''
"""float16 whose losses are added to the next tensor of the key."""

from dataclasses import dataclass

import torch

from testbed.codec.base import Codec, part


class HalfWithResidual(Codec):
    dense = elementwise = size_only = has_memory = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """None."""

    def __init__(self, options, context):
        self._residuals = {}

    def encode(self, wire_key, tensor):
        wanted = tensor + self._residuals.get(wire_key, 0.0)
        half = wanted.half()
        self._residuals[wire_key] = wanted - half.float()
        return (half,)

    def decode(self, wire_key, parts, size):
        return part(parts, torch.float16, size).float()
'''


def test_payloads_of_a_codec_with_a_memory_are_not_added_up_on_the_way(tmp_path: Path) -> None:
    """Its residual is of a worker's whole tensor, and not of the chunks or sums that a rank sends."""
    file = tmp_path / "half_with_residual.py"
    file.write_text(HALF_WITH_RESIDUAL)
    codec = f"codec={file}:HalfWithResidual"
    result = run(tmp_path, "training.rounds=4", "training.evaluate_every=4", "paradigm=allreduce", codec)
    assert len(result.hashes()) == 1
    with pytest.raises(ScenarioError, match="'merge: sum' adds up contributions on the way"):
        load(THREE_SITES, ("overlay=tree", codec))


def test_the_first_sums_are_on_their_way_together(tmp_path: Path) -> None:
    """Buckets overlap: two of them take less than twice the time of one."""
    times = {}
    for bucket in (10**9, 3000):
        plan = serverless_plan([1, 1, 1], "allreduce", {"bucket": bucket}, rounds=2)
        runs = worlds("virtual", tmp_path / str(bucket))
        run_plan(runs, plan)
        times[bucket] = [event["t"] for event in runs.events("a/worker0") if event["kind"] == "round"][-1]
    assert times[3000] < times[10**9] * 1.2
