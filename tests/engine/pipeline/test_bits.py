"""A pipeline ends with the bits of whole workers that accumulate the same micro-batches."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
import torch

from testbed.engine.pipeline.layout import layout_of
from testbed.engine.pipeline.step import keys_of_stage
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.code import check_code
from testbed.plan.model import from_json, to_json
from testbed.plan.stages import replicas_of
from testbed.results.summary import final_digests
from testbed.scenario.load import loads
from testbed.settings.job import Choice
from tests.engine.runs import Simulated, run, run_plan
from tests.for_each import for_each

EXAMPLES = Path(__file__).parents[2] / "testing" / "examples"
SCENARIO = """
version: 1
name: stages
seed: 1
run: {{on: simulate}}
topology:
  data_centers: [{sites}]
  links: [{links}]
training: {{model: cnn, data: digits, batch: 10, rounds: 3, evaluate_every: 2}}
device: {{step_time: 100 ms}}
optimizer: {{kind: adam, learning_rate: 0.002}}
"""


def scenario_of(sites: int, workers: int) -> str:
    names = "abcdefgh"[:sites]
    return SCENARIO.format(
        sites=", ".join(f"{{name: {name}, workers: {workers}, central: {str(name == 'a').lower()}}}" for name in names),
        links=", ".join(
            f"{{between: [{one}, {other}], rate: 50 Mbit/s, delay: 3 ms}}" for one, other in pairwise(names)
        ),
    )


@cache
def trained(sites: int, workers: int, *overrides: str) -> Simulated:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scenario.yaml").write_text(scenario_of(sites, workers))
        return run(folder, *overrides, scenario=folder / "scenario.yaml")


def model_of(done: Simulated) -> torch.Tensor:
    """Return the parameters of the whole model, which all replicas have."""
    if done.plan.pipeline is None:
        return done.parameters(done.plan.training_workers[0].name)
    layout = layout_of(done.plan)
    places = [key for chunks in layout.chunks for key in keys_of_stage(layout.model.keys, chunks)]
    models = []
    for replica in replicas_of(done.plan):
        values = dict(zip(places, [value for name in replica for value in done.results[name]], strict=True))
        models.append(torch.cat([values[key] for key in sorted(values)]))
    assert all(torch.equal(model, models[0]) for model in models)
    return models[0]


def scores_of(done: Simulated) -> list[Any]:
    return [(event["round"], event["accuracy"], event["loss"]) for event in done.of_kind("evaluate")]


def pipeline(stages: int, schedule: str = "1f1b", **options: str) -> str:
    more = "".join(f", {name}: {value}" for name, value in options.items())
    return f"paradigm={{kind: pipeline, stages: {stages}, micro_batches: 4, schedule: {schedule}{more}}}"


CASES = [
    (2, 1, "1f1b"),
    (3, 1, "gpipe"),
    (5, 1, "greedy"),
    (5, 1, "zero_bubble"),
    (2, 2, "gpipe"),
    (3, 2, "1f1b"),
    (2, 2, "interleaved"),
]


@for_each(("stages", "replicas", "schedule"), CASES)
def test_the_bits_of_whole_workers(stages: int, replicas: int, schedule: str) -> None:
    staged = trained(stages, replicas, pipeline(stages, schedule))
    whole = trained(1, replicas, "paradigm=allreduce", "training.accumulate=4")
    assert torch.equal(model_of(staged), model_of(whole))
    assert scores_of(staged) == scores_of(whole)


@for_each(
    ("replicas", "sync"),
    [
        ("hips", "fsa"),
        ("{kind: ps, pull: all}", "fsa"),
        ("allreduce", "{kind: diloco, h: 2}"),
        ("hips", "{kind: diloco, h: 2}"),
        ("hips", "{kind: hfa, k1: 2, k2: 1}"),
        ("{kind: allreduce, algorithm: tree}", "fsa"),
    ],
)
def test_replicas_exchange_as_without_stages(replicas: str, sync: str) -> None:
    staged = trained(2, 2, pipeline(2, replicas=replicas), f"sync={sync}")
    whole = trained(1, 2, f"paradigm={replicas}", f"sync={sync}", "training.accumulate=4")
    assert torch.equal(model_of(staged), model_of(whole))


@for_each(
    ("algorithm", "sync"),
    [
        ("{kind: gossip, algorithm: dpsgd}", "fsa"),
        ("{kind: gossip, algorithm: sgp, graph: exponential}", "fsa"),
        ("{kind: gossip, algorithm: noloco, graph: matching}", "{kind: diloco, h: 2}"),
    ],
)
def test_replicas_of_each_stage_gossip_as_whole_workers(algorithm: str, sync: str) -> None:
    """The average of four at the end is summed around a ring, in another order for parts than for the whole."""
    longer = ("training.rounds=5", f"sync={sync}")
    for replicas in (2, 4):
        staged = trained(2, replicas, pipeline(2, replicas=algorithm), *longer)
        whole = trained(1, replicas, f"paradigm={algorithm}", *longer, "training.accumulate=4")
        assert [score[0] for score in scores_of(staged)] == [1, 3, 4]
        if replicas == 2:
            assert torch.equal(model_of(staged), model_of(whole))
            assert scores_of(staged) == scores_of(whole)
        else:
            assert torch.allclose(model_of(staged), model_of(whole), rtol=0, atol=1e-6)
            assert scores_of(staged)[:2] == scores_of(whole)[:2]


def test_replicas_that_gossip_end_together_at_the_target() -> None:
    early = ("training.rounds=40", "training.evaluate_every=1", "training.target_accuracy=1 %")
    done = trained(3, 3, pipeline(3, replicas="{kind: gossip, graph: ring}"), *early)
    rounds = {len(done.of_kind("round", worker.name)) for worker in done.plan.training_workers}
    assert len(rounds) == 1
    assert rounds.pop() < 8


def test_where_the_model_is_cut_and_who_has_which_part_changes_no_bit() -> None:
    models = [
        model_of(trained(2, 2, pipeline(2, **options)))
        for options in (
            {},
            {"cuts": "4"},
            {"recompute": "true"},
            {"placement": "whole_replicas"},
            {"placement": "{kind: listed, order: b a}"},
        )
    ]
    assert all(torch.equal(model, models[0]) for model in models)


def test_the_digest_of_the_parameters_does_not_depend_on_the_cut() -> None:
    runs = [trained(2, 2, pipeline(2)), trained(2, 2, pipeline(2, "interleaved")), trained(3, 2, pipeline(3))]
    assert all(torch.equal(model_of(each), model_of(runs[0])) for each in runs)
    digests = [
        final_digests(pd.DataFrame(each.of_kind("final")), json.loads(to_json(each.plan)), gone=()) for each in runs
    ]
    assert digests == [digests[0]] * 3
    assert len(digests[0]) == 1


def test_whole_replicas_send_no_activation_over_the_wan() -> None:
    done = trained(2, 2, pipeline(2, placement="whole_replicas"))
    sent = [event for event in done.of_kind("transfer") if event["message"] in ("activation", "activation-gradient")]
    assert sent
    assert all(event["source"].split("/")[0] == event["node"].split("/")[0] for event in sent)


def test_the_round_after_the_target_is_the_last_at_all_stages() -> None:
    early = ("training.rounds=40", "training.evaluate_every=1", "training.target_accuracy=1 %")
    done = trained(3, 2, pipeline(3), *early)
    rounds = {worker.name: len(done.of_kind("round", worker.name)) for worker in done.plan.training_workers}
    assert set(rounds.values()) == {3}  # two scores in a row, and the round that was under way


def test_samples_and_losses_are_told_by_the_last_stage() -> None:
    done = trained(3, 2, pipeline(3))
    samples = {event["node"][0]: event["samples"] for event in done.of_kind("round")}
    assert samples == {"a": 0, "b": 0, "c": 10}


LOW_RANK = "{kind: powersgd, rank: 1, start: 0, least_saving: 1}"


@for_each("codec", ["fp16", "{kind: topk, ratio: 0.2, bound: 2}", LOW_RANK])
def test_activations_pass_through_codecs_and_training_goes_on(codec: str) -> None:
    plain = trained(2, 1, pipeline(2, cuts="2"))
    coded = trained(2, 1, pipeline(2, cuts="2", activations=codec, activation_gradients=codec))
    assert not torch.equal(model_of(plain), model_of(coded))
    assert torch.isfinite(model_of(coded)).all()
    sizes = [sum(event["payload_bytes"] for event in done.of_kind("transfer")) for done in (plain, coded)]
    assert sizes[1] < 0.6 * sizes[0]
    assert coded.plan.pipeline is not None
    for kind, planned in (
        ("activation", coded.plan.pipeline.activation_bytes),
        ("activation-gradient", coded.plan.pipeline.gradient_bytes),
    ):
        sent = [event["payload_bytes"] for event in coded.of_kind("transfer") if event["message"] == kind]
        assert planned == (max(sent),)


def test_what_has_too_few_segments_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"stages need .* has 5, which cannot be cut further; write fewer stages"):
        trained(6, 1, pipeline(6))


REFUSED = [
    (
        "paradigm.stages=3",
        "4 workers cannot be divided into replicas of 3 stages (write 'stages: 2' or 'stages: 4', or other numbers",
    ),
    ("paradigm.micro_batches=11", "11 micro-batches of a batch of 10 samples"),
    ("training.accumulate=2", "the pipeline already cuts it into micro-batches"),
    ("paradigm.schedule=interleaved", "9 micro-batches cannot be sent in groups of 2"),
    ("paradigm.cuts=3 1", "are not 1 ascending numbers"),
    ("sync=tap", "make each step together"),
    ("optimizer={kind: adam, clip_norm: 1}", "the norm of the gradient of the whole model"),
    ("recovery.on_failure=continue", "a lost worker takes its stage with it"),
    ("paradigm.replicas={kind: allreduce, overlap: buckets}", "paradigm.replicas.overlap: gradients are complete when"),
    ("paradigm.replicas={kind: gossip, algorithm: adpsgd}", "pairs meet whenever a worker has made a step"),
    ("paradigm.replicas={kind: gossip, graph: network}", "by the data centres' links differ from stage to stage"),
    ("paradigm.activations=demo", "is for parameters, which it treats by their shapes"),
]


@for_each(("change", "problem"), REFUSED)
def test_what_does_not_go_together_is_refused_with_a_cure(change: str, problem: str) -> None:
    base = pipeline(2).replace("micro_batches: 4", "micro_batches: 9")
    with pytest.raises(ScenarioError) as refused:
        loads(scenario_of(2, 2), overrides=(base, change))
    assert problem in str(refused.value)
    assert "write" in str(refused.value)


def test_each_stage_has_servers_of_its_own() -> None:
    plan = build_plan(loads(scenario_of(2, 2), overrides=(pipeline(4, replicas="hips"),)))
    of_stage_2 = {node.name: (node.parents, node.children) for node in plan.nodes if node.stage == 2}
    assert of_stage_2 == {
        "a/global0-2": ((), ("b/server0-2",)),
        "b/worker0": (("b/server0-2",), ()),
        "b/server0-2": (("a/global0-2",), ("b/worker0",)),
    }


def test_a_schedule_and_a_placement_from_files_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("waves.py", "largest_first.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "scenario.yaml").write_text(scenario_of(2, 2))
    monkeypatch.chdir(tmp_path)  # code of scenarios at or below the working directory may be imported
    own = pipeline(2, "{kind: './waves.py:Waves', size: 2}", placement="'./largest_first.py:LargestFirst'")
    done = run(tmp_path, own, scenario=tmp_path / "scenario.yaml")
    assert torch.equal(model_of(done), model_of(trained(2, 2, pipeline(2))))
    assert {event["tasks"] for event in done.of_kind("stage")} == {"F0 F1 B0 B1 F2 F3 B2 B3"}
    assert done.plan.pipeline is not None
    assert done.plan.pipeline.tasks == ("F0 F1 B0 B1 F2 F3 B2 B3",) * 2
    assert [Path(file.path).name for file in done.plan.code] == ["waves.py", "largest_first.py"]
    (tmp_path / "waves.py").unlink()
    check_code(done.plan)


def test_nodes_take_their_tasks_from_the_plan(tmp_path: Path) -> None:
    """The Plan is all that they have: a schedule that is nowhere else trains to the same bits."""
    plan = build_plan(loads(scenario_of(2, 2), overrides=(pipeline(2), "simulation.network=flows")), "simulate")
    assert plan.pipeline is not None
    gone = Choice(kind="./gone.py:Gone")
    given = replace(plan.pipeline, schedule=gone, tasks=("F0 F1 F2 B0 F3 B1 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"))
    done = run_plan(tmp_path, from_json(to_json(replace(plan, pipeline=given))))
    passes = [
        event["part"] for event in done.of_kind("compute", "a/worker0") if event["round"] == 1 and event.get("part")
    ]
    assert passes == [f"{'forward' if word[0] == 'F' else 'backward'} {word[1]}" for word in given.tasks[0].split()]
    assert torch.equal(model_of(done), model_of(trained(2, 2, pipeline(2))))


def test_what_codecs_leave_out_is_lost_or_added_to_the_next_step() -> None:
    topk = {"activations": "{kind: topk, ratio: 0.2, bound: 2}"}
    lost, kept = (
        trained(2, 1, pipeline(2, **topk, error_feedback=feedback), "training.rounds=2")
        for feedback in ("false", "true")
    )
    losses = [[event["loss"] for event in done.of_kind("round", "b/worker0")] for done in (lost, kept)]
    assert losses[0][0] == losses[1][0]  # nothing has been left out before
    assert losses[0][1] != losses[1][1]
