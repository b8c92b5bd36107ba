"""Pipelines of declared models, of which only sizes are known: times, memory, and the figures of a run."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from testbed.engine.pipeline.layout import layout_of
from testbed.engine.pipeline.memory import memory_of, memory_of_whole
from testbed.engine.roles import make_role
from testbed.errors import ScenarioError
from testbed.launch import check_before_training
from testbed.plan.build import build_plan
from testbed.plan.model import Plan, to_json
from testbed.plan.pipeline import staged
from testbed.policy.pipeline.timing import Timing
from testbed.results import tables
from testbed.results.pipelines import pipeline_result
from testbed.results.summary import Ending, summarise
from testbed.scenario.load import load, loads
from testbed.training.declared import COLUMNS, declared_shape
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

SCENARIO = """
version: 1
name: declared
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 4}]
  lan: {rate: 1000 Gbit/s, delay: 0 us}
training: {model: {kind: declared, name: llama2-7b, sequence: 128}, data: none, compute: modelled, precision: bf16,
  batch: 16, rounds: 3, evaluate_every: 3}
device: {step_time: 160 s}
optimizer: {kind: sgd, learning_rate: 0.1, at: worker}
paradigm: {kind: pipeline, micro_batches: 16, cuts: 8 16 25}
"""
ELEMENT_BYTES = 2
TOKENS = 128
WIDTH = 4096


def trained(*overrides: str) -> tuple[Simulated, dict[str, Any]]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(SCENARIO)
        done = run(folder, *overrides, scenario=folder / "scenario.yaml")
        frames = {key: tables.frame(table) for key, table in tables.build(folder / "events").items()}
        return done, dict(pipeline_result(frames))


def timing_when_planned(plan: Plan) -> Timing:
    """Return when the tasks of a Plan are computed, by its times and rates."""
    assert plan.pipeline is not None
    return staged(plan.pipeline, plan.training, plan.nodes, plan.network, plan.seed).timing


def test_a_model_whose_activations_are_unknown_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"{name},w,{100 + number},1e9\n" for number, name in enumerate("abcd"))
    (tmp_path / "layers.csv").write_text(f"{','.join(COLUMNS)}\n{rows}")
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("cuts: 8 16 25", "stages: 2"))
    model = f"training.model={{kind: declared, file: {tmp_path}/layers.csv}}"
    unsized = load(tmp_path / "scenario.yaml", [model, "training.batch=64"])
    with pytest.raises(ScenarioError, match="nothing would travel between stages"):
        build_plan(unsized)


def test_a_whole_model_that_does_not_fit_is_refused_too() -> None:
    """Of AdamW at the worker four numbers for each parameter, and the activations of one part of the batch."""
    whole = ("paradigm=allreduce", "optimizer={kind: adamw, at: worker}")
    plan = build_plan(loads(SCENARIO, "declared.yaml", [*whole, "device.memory=80 GB"]))
    needed = memory_of_whole(plan)
    assert needed.parameters + needed.gradients + needed.optimizer == 16 * sum(declared_shape("llama2-7b").sizes)
    with pytest.raises(ScenarioError, match=r"the whole model needs .* write 'paradigm: pipeline'"):
        check_before_training(loads(SCENARIO, "declared.yaml", [*whole, "device.memory=80 GB"]), plan)
    with pytest.raises(ScenarioError, match="the whole model needs"):
        make_role(plan, plan.training_workers[0])  # as in advice, which simulates without that check
    parts = build_plan(loads(SCENARIO, "declared.yaml", [*whole, "training.accumulate=16"]))
    assert memory_of_whole(parts).activations == needed.activations / 16
    enough = loads(SCENARIO, "declared.yaml", [*whole, "device.memory=200 GB"])
    check_before_training(enough, build_plan(enough))


@for_each("schedule", ["gpipe", "1f1b", "zero_bubble", "greedy"])
def test_the_engine_takes_the_time_that_the_schedule_says(schedule: str) -> None:
    done, told = trained(f"paradigm.schedule={schedule}")
    timing = timing_when_planned(done.plan)
    busy_s = sum(each.end_s - each.start_s for stage in timing.intervals for each in stage)
    assert told["bubble"] == pytest.approx(1 - busy_s / (timing.end_s * len(timing.intervals)), abs=0.005)
    first = [event for event in done.of_kind("compute") if event["round"] == 1 and event.get("part")]
    span_s = max(event["t"] for event in first) - min(event["t0"] for event in first)
    assert span_s == pytest.approx(timing.end_s, rel=0.005)


def test_bytes_are_those_of_activations() -> None:
    _, told = trained()
    ways = 3 * 2  # between 4 stages, there and back
    assert told["activation_bytes"] == {"a>a": 3 * ways * 16 * TOKENS * WIDTH * ELEMENT_BYTES}
    assert told["gradient_bytes"] == {}


def test_memory_is_counted() -> None:
    plan = build_plan(loads(SCENARIO, overrides=("optimizer={kind: adam, at: worker}",)))
    layout = layout_of(plan)
    needed = memory_of(plan, layout, 1)
    shape = declared_shape("llama2-7b", TOKENS)
    elements = sum(count for segment in shape.segments[8:16] for count in segment.sizes)
    assert (needed.parameters, needed.gradients, needed.optimizer) == (4 * elements, 4 * elements, 8 * elements)
    of_layer = (8 * WIDTH + 2 * WIDTH + 3 * 11_008) * TOKENS
    assert needed.activations == 3 * 8 * of_layer * ELEMENT_BYTES  # 1F1B: of three micro-batches, before two stages
    again = build_plan(loads(SCENARIO, overrides=("paradigm.recompute=true",)))
    kept = memory_of(again, layout_of(again), 1)
    assert kept.activations == (3 * TOKENS * WIDTH + 8 * of_layer) * ELEMENT_BYTES
    assert kept.optimizer == 0


def test_a_stage_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"stage 0 needs .* a/worker0 has 8 GB; write more stages"):
        trained("device.memory=8 GB")


def test_that_is_said_before_anything_starts_with_its_place() -> None:
    scenario = loads(SCENARIO.replace("step_time: 160 s", "step_time: 160 s, memory: 8 GB"), "s.yaml")
    with pytest.raises(ScenarioError, match=r"s.yaml:11:\d+: device.memory: stage 0 needs"):
        check_before_training(scenario, build_plan(scenario))


def test_computing_forward_again_takes_its_time() -> None:
    shares = [
        timing_when_planned(build_plan(loads(SCENARIO, overrides=each))) for each in ((), ("paradigm.recompute=true",))
    ]
    assert shares[1].end_s == pytest.approx(shares[0].end_s * 4 / 3, rel=0.02)


def test_tied_embeddings_are_refused() -> None:
    with pytest.raises(ScenarioError, match="the last segment of 'gpt2-small' computes with the embeddings"):
        trained("training.model={kind: declared, name: gpt2-small}")


def test_a_slow_wan_has_deadlines_for_parts_of_a_model() -> None:
    shipped = Path(__file__).parents[3] / "scenarios" / "large" / "llama2-70b-pipeline.yaml"
    plan = build_plan(load(shipped, ("topology.links[*].rate=100 Mbit/s",)))
    part_s = 2 * 4 * 68_976_648_192 / 32 * 8 / 100e6
    assert plan.timeouts.step_deadline_s > 4 * 20 * part_s
    with pytest.raises(ScenarioError, match="step_deadline would be"):
        build_plan(
            load(shipped, ("topology.links[*].rate=100 Mbit/s", "paradigm=allreduce", "training.precision=float32"))
        )


LARGE_ACTIVATIONS = """
version: 1
name: large-activations
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 100 Mbit/s, delay: 5 ms}]
training: {model: {kind: declared, name: resnet18}, data: none, compute: modelled, batch: 32768, rounds: 2,
  evaluate_every: 2}
device: {step_time: 1 s}
optimizer: {kind: sgd, learning_rate: 0.1}
paradigm: {kind: pipeline, micro_batches: 8, cuts: 2, schedule: gpipe}
"""


def test_deadlines_wait_for_activations(tmp_path: Path) -> None:
    """Stage 0 waits half an hour for its first gradient, as 26 GB are before it, of a model of 47 MB."""
    (tmp_path / "scenario.yaml").write_text(LARGE_ACTIVATIONS)
    done = run(tmp_path, scenario=tmp_path / "scenario.yaml")
    ended = [event["t"] for event in done.of_kind("round")]
    way_s = 32768 * 200_704 * 4 * 8 / 100e6
    timeouts = done.plan.timeouts
    assert "are predicted, and packets" in build_plan(load(tmp_path / "scenario.yaml")).simulation.network_reason
    assert max(ended) == pytest.approx(2 * 2 * way_s, rel=0.1)
    assert timeouts.step_deadline_s > 20 * 2 * way_s
    slower = ("faults=[{kind: rate, link: a>b, at: 1 min, for: 1 h, rate: 80 Mbit/s}]",)
    slowed = build_plan(load(tmp_path / "scenario.yaml", slower)).timeouts
    assert slowed.step_deadline_s - timeouts.step_deadline_s > 20 * way_s / 5
    many = build_plan(load(tmp_path / "scenario.yaml", ("training.rounds=20", "sync={kind: diloco, h: 3}"))).timeouts
    assert many.run_deadline_s > 20 * 3 * 2 * way_s
    with pytest.raises(ScenarioError, match=r"activations and their gradients of a step .*step_deadline would be"):
        build_plan(load(tmp_path / "scenario.yaml", ("topology.links[*].rate=20 Mbit/s",)))


def test_a_round_has_the_samples_of_one_batch(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    done = run(tmp_path, scenario=tmp_path / "scenario.yaml")
    counted = {event["node"]: event["samples"] for event in done.of_kind("round")}
    assert sorted(counted.values()) == [0, 0, 0, 16], "advice and studies add up the samples of all stages"
    frames = {key: tables.frame(table) for key, table in tables.build(tmp_path / "events").items()}
    fine = {"status": "ok", "reasons": [], "notes": []}
    result = summarise(frames, json.loads(to_json(done.plan)), fine, Ending("done", "", "", "", 1.0))
    assert result["samples_per_worker"] == [3 * 16, 3 * 16]
    assert result["samples_per_s"] * result["round_time_s"] == pytest.approx(16, rel=1e-4)
    assert result["samples_per_s"] * result["training_s"] == pytest.approx(3 * 16, rel=1e-4)


@for_each("name", ["activations", "activation_gradients"])
def test_a_codec_that_would_send_all_as_it_is_is_refused(name: str) -> None:
    sent = TOKENS * WIDTH  # elements of a micro-batch of one sample

    def plan_with(bound: int) -> None:
        codec = f"paradigm.{name}={{kind: topk, ratio: 0.1, bound: {bound}}}"
        build_plan(loads(SCENARIO, overrides=(codec,)))

    plan_with(sent)
    with pytest.raises(ScenarioError, match=f"paradigm.{name}: 'topk' sends .* write 'bound: {sent}'"):
        plan_with(sent + 1)
