"""Where workers do not wait for each other, they share the rounds, and the global model is scored to the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from testbed.engine import sync_setup
from testbed.engine.learner import make_learner
from testbed.policy.gossip import ALGORITHMS
from testbed.policy.sync import SYNC
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

TECHNIQUES = {
    **{kind: (f"sync={kind}",) for kind in SYNC.where(lambda sync: not sync.waits)},
    "halos": ("sync={kind: halos, h: 2, updates: 2, outer_learning_rate: 1}",),
    "tap with layers that overlap": ("sync=tap", "order={kind: p3, slice: 1 MB}", "training.model=cnn"),
    **{f"{kind} on servers alone": ("paradigm=ps", f"sync={kind}") for kind in ("tap", "ssp")},
    **{
        kind: (f"paradigm={{kind: gossip, algorithm: {kind}}}",)
        for kind, algorithm in ALGORITHMS.items()
        if algorithm.pairwise
    },
}
UNLIKE = ("data_centers[hub].device.step_time=2 ms", "training.evaluate_every=3", "training.rounds=8")
TARGET = ("training.target_accuracy=5 %", "training.evaluate_every=1")


def final_model(ended: Simulated) -> list[torch.Tensor]:
    """Return the global model: the global server's, or, where there is none, what all workers end with."""
    servers = ended.plan.with_role("global_server")
    values: list[torch.Tensor] = ended.results[(servers or ended.plan.training_workers)[0].name]
    return values


@pytest.mark.parametrize("target", [(), TARGET], ids=["to the end", "target"])
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_the_last_score_is_that_of_the_final_global_model(
    technique: str, target: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run(tmp_path, *TECHNIQUES[technique], *UNLIKE, *target)
    workers = ended.plan.training_workers
    made = [len(ended.of_kind("round", worker.name)) for worker in workers]
    scores, changes = ended.of_kind("evaluate"), [*ended.of_kind("update"), *ended.of_kind("round")]
    assert len(set(made)) > 1, "fast workers make more rounds"
    if target:
        assert sum(made) < 8 * len(workers)
    elif sync_setup.local_model(ended.plan) is None:
        assert sum(made) == 8 * len(workers)
    else:  # local servers hear of the end with what they merge last
        assert 8 * len(workers) <= sum(made) < 12 * len(workers)
    assert scores[-1]["snapshot_t"] >= max(update["t"] for update in ended.of_kind("update") or changes)
    expected = make_learner(ended.plan, workers[0]).evaluate(final_model(ended))
    assert expected is not None
    assert (scores[-1]["accuracy"], scores[-1]["loss"]) == (expected.accuracy, expected.loss)
    times = [score["snapshot_t"] for score in scores]
    assert times == sorted(times)
    if not target:
        rounds = [score["round"] for score in scores]
        assert rounds == [2, 5, 7] or (rounds[:2] == [2, 5] and sum(made) > 8 * len(workers))


@for_each(
    "model",
    [
        ("order=p3", "training.model=cnn"),
        ("training.model={kind: mlp, layers: 34, hidden: 8}",),  # whose tensors travel together
    ],
)
def test_slices_and_buckets_of_several_global_servers_are_scored_as_one_model(
    model: tuple[str, ...], tmp_path: Path
) -> None:
    """The local servers cut once more what workers have cut. Who ends last has the final values by its last reply."""
    cut = ("topology.data_centers[0].global_servers=2", "shard=multigps", *model)
    ended = run(tmp_path, "sync=tap", "training.rounds=6", "training.evaluate_every=2", *cut)
    last = max(ended.of_kind("round"), key=lambda event: float(event["t"]))["node"]
    expected = make_learner(ended.plan, ended.plan.training_workers[0]).evaluate(ended.results[last])
    score = ended.of_kind("evaluate")[-1]
    assert expected is not None
    assert (score["accuracy"], score["loss"]) == (expected.accuracy, expected.loss)
