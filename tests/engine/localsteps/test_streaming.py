"""Streaming DiLoCo: fragments in turns need a fraction of the rate, late ones cost no time, and it learns as DiLoCo."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from testbed.engine.learner import make_learner
from testbed.engine.streaming import StreamedSteps
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.policy.sync.streaming import Streaming, fragments_of
from testbed.scenario.load import load
from testbed.settings.job import Choice
from testbed.training.optimizers import ModelOptimizer
from tests.end_to_end.runs import run_scenario
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import worlds
from tests.engine.localsteps.test_without_servers import finals, with_steps
from tests.engine.runs import THREE_SITES, Simulated, run
from tests.for_each import for_each

FRAGMENTS, H = 4, 12
DEEP = (
    "training.model={kind: mlp, hidden: 64, layers: 4}",
    "training.evaluate_every=4",
    "device.step_time=20 ms",
    "optimizer={kind: adam, learning_rate: 0.003, at: worker}",
)
PLAIN = f"sync={{kind: diloco, h: {H}, outer_momentum: 0.6}}"
STREAMED = f"sync={{kind: diloco, h: {H}, outer_momentum: 0.6, fragments: {FRAGMENTS}}}"
LATE = f"sync={{kind: diloco, h: {H}, outer_momentum: 0.6, fragments: {FRAGMENTS}, overlap_steps: 2}}"


def trained(directory: Path, sync: str, paradigm: str, rounds: int, *others: str) -> Simulated:
    return run(directory, *DEEP, sync, f"paradigm={paradigm}", f"training.rounds={rounds}", *others)


def sent(result: Simulated) -> Counter[int]:
    """Return the payload that crossed the WAN in each round of training."""
    found: Counter[int] = Counter()
    for event in result.of_kind("transfer"):
        if event["tier"] == "wan" and event["key"] >= 0 and event["round"] >= 0:
            found[event["round"]] += event["payload_bytes"]
    return found


def accuracy(result: Simulated) -> float:
    return float(result.of_kind("evaluate")[-1]["accuracy"])


@pytest.mark.slow  # 3 s
@pytest.mark.parametrize("paradigm", ["ps", pytest.param("allreduce", marks=pytest.mark.slow)])  # 3 s
def test_the_peak_falls_by_the_number_of_fragments(paradigm: str, tmp_path: Path) -> None:
    """For as many steps and bytes, and with a model that is as good."""
    plain = trained(tmp_path / "plain", PLAIN, paradigm, 5)
    streamed = trained(tmp_path / "streamed", STREAMED, paradigm, 5 * FRAGMENTS)
    late = trained(tmp_path / "late", LATE, paradigm, 5 * FRAGMENTS)
    for each in (streamed, late):
        assert sum(sent(each).values()) == pytest.approx(sum(sent(plain).values()), rel=0.01)
        assert max(sent(each).values()) < 1.1 * max(sent(plain).values()) / FRAGMENTS
        assert accuracy(each) > accuracy(plain) - 0.04 > 0.7
        assert len(each.hashes()) == 1, "all end with the fragments after their last outer steps"
        assert {event["steps"] for event in each.of_kind("round")} == {H // FRAGMENTS}
    assert late.round_s("hub/worker0") < streamed.round_s("hub/worker0")
    if paradigm == "ps":  # there and back within two steps: no round lasts longer than its steps
        assert late.round_s("hub/worker0") < 1.2 * 0.02 * H / FRAGMENTS


def test_one_fragment_is_diloco(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", PLAIN.replace("}", ", fragments: 1}"), "allreduce", 2)
    assert one.hashes() == trained(tmp_path / "plain", PLAIN, "allreduce", 2).hashes()


def test_paradigms_agree(tmp_path: Path) -> None:
    rows = [trained(tmp_path / each, LATE, each, 5).parameters("east/worker1") for each in ("ps", "hips", "allreduce")]
    for row in rows[1:]:
        assert torch.allclose(row, rows[0], atol=1e-4)


@for_each(("sync", "paradigm"), [(LATE, "ps"), (STREAMED, "allreduce")])
def test_what_is_scored_last_is_what_the_run_ends_with(sync: str, paradigm: str, tmp_path: Path) -> None:
    """Also where the last round is one to evaluate after: its values are those before the end of training."""
    result = trained(tmp_path, sync, paradigm, 8)
    learner = make_learner(result.plan, result.plan.node("hub/worker0"))
    score, last = learner.evaluate(result.results["hub/worker0"]), result.of_kind("evaluate")[-1]
    assert score is not None and (last["round"], last["loss"]) == (7, pytest.approx(score.loss, rel=1e-9))
    assert last["accuracy"] == pytest.approx(score.accuracy)


def test_worlds_agree(tmp_path: Path) -> None:
    steps = Choice(kind="diloco", options={"h": 6, "fragments": 2, "overlap_steps": 1})
    hashes = set()
    for kind in ("real", "virtual"):
        plan = with_steps(serverless_plan([2, 2], "allreduce", {}, rounds=6), steps)
        runs = worlds(kind, tmp_path / kind)
        hashes |= finals(runs, list(run_plan(runs, plan)))
    assert len(hashes) == 1
    texts = (*DEEP, LATE, "paradigm=ps", "training.rounds=5", "device.step_time=1 ms")
    local = run_scenario(tmp_path / "local", "local", *texts, scenario=THREE_SITES)
    assert local.outcome.status == "done", local.outcome.message
    assert local.hashes("worker") == run(tmp_path / "simulated", *texts).hashes()


def test_fragments_are_balanced_and_whole() -> None:
    sizes = (4096, 64, 4096, 64, 4096, 64, 640, 10)
    fragments = fragments_of(sizes, 3)
    assert sorted(key for keys in fragments for key in keys) == list(range(8))
    loads = [sum(sizes[key] for key in keys) for keys in fragments]
    assert max(loads) < 1.2 * sum(sizes) / 3


@for_each(
    ("texts", "words"),
    [
        ((LATE.replace("overlap_steps: 2", "overlap_steps: 3"),), "write 2 or less"),
        (("sync={kind: diloco, h: 3, fragments: 4}",), "write 3 or fewer"),
        ((STREAMED.replace("}", ", late: compensate}"),), "without 'overlap_steps'"),
        ((LATE.replace("}", ", compensation: 2}"),), "write late: compensate"),
        ((LATE, "paradigm=gossip"), "no such sum"),
        ((LATE, "overlay=tree"), "write 'star'"),
        ((LATE, "paradigm={kind: allreduce, optimizer_work: update}"), "write 'replicated'"),
    ],
)
def test_what_is_refused(texts: tuple[str, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        build_plan(load(THREE_SITES, (*DEEP, *texts)), "simulate")


def test_more_fragments_than_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the model has 4 tensors"):
        trained(
            tmp_path / "run",
            STREAMED.replace("fragments: 4", "fragments: 5"),
            "ps",
            2,
            "training.model={kind: mlp, hidden: 8, layers: 1}",
        )


def test_steps_meanwhile_are_put_on_top_of_a_late_fragment() -> None:
    """It went down by 0.3 and 0.4; the new value is 2 higher in the first place, where a steeper slope is assumed."""
    found = compensated(now=[0.7, 0.6], new=[3.0, 1.0], sent=[1.0, 1.0])
    assert found.tolist() == pytest.approx([3.0 - 0.3 - 0.5 * 0.5, 1.0 - 0.4])  # a correction of half of g's length


def test_a_worker_that_has_not_moved_takes_a_late_fragment_as_it_is() -> None:
    assert compensated(now=[1.0, 1.0], new=[3.0, 0.0], sent=[1.0, 1.0]).tolist() == [3.0, 0.0]


def test_a_compensated_fragment_is_nearer_to_steps_from_the_new_value() -> None:
    """On a loss whose curvature is the square of its slope where the worker was, as the method assumes."""
    slope, rate = torch.tensor([0.8, -0.5, 0.3]), 0.1
    sent = torch.tensor([1.0, 2.0, 3.0])
    new = sent + torch.tensor([0.4, -0.2, 0.3])
    from_new = new - rate * (slope + slope * slope * (new - sent))
    length = (slope * slope * (new - sent)).norm() / slope.norm()
    found = compensated(sent - rate * slope, new, sent, compensation=float(length))
    assert torch.allclose(found, from_new)


def compensated(now: Any, new: Any, sent: Any, compensation: float = 0.5) -> torch.Tensor:
    steps = StreamedSteps(
        Mock(),
        ModelOptimizer("sgd", {"learning_rate": 0.1}, [torch.zeros(1)]),
        1.0,
        Streaming(fragments=1, overlap_steps=2, mixing=0.5, compensation=compensation),
    )
    return steps._compensated(*(torch.as_tensor(each) for each in (now, new, sent)))


@for_each("late", ["", ", late: compensate"])
def test_compensated_fragments_end_with_one_model_everywhere(late: str, tmp_path: Path) -> None:
    sync = LATE.replace("}", f"{late}}}")
    rows = [trained(tmp_path / each, sync, each, 5).parameters("east/worker1") for each in ("ps", "allreduce")]
    assert torch.allclose(rows[0], rows[1], atol=1e-4)
    if late:
        assert not torch.allclose(
            rows[0], trained(tmp_path / "mixed", LATE, "ps", 5).parameters("east/worker1"), atol=1e-3
        )


def test_a_state_in_main_memory_goes_on_where_the_model_is() -> None:
    """As on a GPU, of whose tensors a checkpoint holds copies in main memory."""

    def made(device: str) -> StreamedSteps:
        optimizer = ModelOptimizer("sgd", {"learning_rate": 0.1}, [torch.zeros(3, device=device)])
        return StreamedSteps(Mock(), optimizer, 1.0, Streaming(fragments=1, overlap_steps=1, mixing=0.5))

    elsewhere = made("meta")
    here = {name: each for name, each in made("cpu").state().items() if name != "kept"}
    elsewhere.load_state(here | {"kept/0": torch.ones(3)})
    tensors = {name: each for name, each in elsewhere.state().items() if isinstance(each, torch.Tensor)}
    assert {name: each.device.type for name, each in tensors.items()} == {
        "optimizer/0/value": "meta",
        "outer/0": "meta",
        "kept/0": "cpu",  # which follows when it is mixed in
    }
