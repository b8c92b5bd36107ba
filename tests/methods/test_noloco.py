"""NoLoCo is equal to a reference over the rounds of a run, and pairs of all two replicas are DiLoCo with heavy ball."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from testbed.engine.learner import make_learner
from testbed.plan.model import Plan
from testbed.policy.gossip.mixing import RandomPairs
from tests.engine.runs import run
from tests.methods.problem import apart

H, RATE, ALPHA, BETA, GAMMA, ROUNDS = 2, 0.05, 0.5, 0.7, 0.8, 12
COMMON = (
    "training.model={kind: mlp, hidden: 8}",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=4",
    f"sync={{kind: diloco, h: {H}}}",
    f"optimizer={{kind: sgd, learning_rate: {RATE}}}",
    f"outer_optimizer={{kind: sgd, learning_rate: {BETA}, momentum: {ALPHA}}}",
)


def reference(plan: Plan) -> list[Tensor]:
    """The models of all replicas at the end, by the formula of the paper, from each replica's own gradients."""
    learners = [make_learner(plan, worker) for worker in plan.training_workers]
    pairs = RandomPairs([range(len(learners))], plan.seed)
    models = [torch.cat(learners[0].values()) for _ in learners]
    momenta = [torch.zeros_like(models[0]) for _ in learners]
    for round_ in range(ROUNDS):
        changes = []
        for learner, phi in zip(learners, models, strict=True):
            theta = phi.clone()
            for step in range(H):
                learner.load(list(torch.split(theta, list(learner.sizes))))
                theta -= RATE * torch.cat(learner.gradient(round_ * H + step).gradients)
            changes.append(phi - theta)
        after = []
        for rank, (phi, delta) in enumerate(zip(models, momenta, strict=True)):
            group = [rank, *pairs.part(round_, rank).sends]
            mean_change = torch.stack([changes[each] for each in group]).mean(0)
            mean_model = torch.stack([models[each] for each in group]).mean(0)
            delta.mul_(ALPHA).sub_(BETA * mean_change + GAMMA * (phi - mean_model))
            after.append(phi + delta)
        models = after
    return models


def test_it_is_equal_to_the_reference(tmp_path: Path) -> None:
    gossip = f"paradigm={{kind: gossip, algorithm: noloco, graph: matching, correction: {GAMMA}}}"
    ended = run(tmp_path, gossip, *COMMON)
    models = reference(ended.plan)
    mean = torch.stack(models).mean(0)
    assert apart(ended.parameters("east/worker0"), mean) < 1e-5
    consensus = ended.of_kind("consensus")[-1]["distance"]
    assert 0 < consensus < 0.2 * float(mean.norm())  # the spread of the replicas


def test_a_pair_of_all_replicas_is_diloco_with_heavy_ball(tmp_path: Path) -> None:
    sites = "{name: hub, central: true, workers: 0}, {name: east, workers: 1}, {name: west, workers: 1}"
    two = f"topology.data_centers=[{sites}]"
    pair = run(tmp_path / "1", "paradigm={kind: gossip, algorithm: noloco, graph: matching}", two, *COMMON)
    ring = run(tmp_path / "2", "paradigm=allreduce", two, *COMMON)
    assert apart(pair.parameters("east/worker0"), ring.parameters("east/worker0")) < 1e-6


def test_a_model_and_its_change_travel(tmp_path: Path) -> None:
    runs = {
        name: run(tmp_path / name, f"paradigm={{kind: gossip, algorithm: {name}, graph: matching}}", *COMMON)
        for name in ("noloco", "dpsgd")
    }
    sent = {
        name: [event["payload_bytes"] for event in each.of_kind("transfer") if event["message"] == "gossip"]
        for name, each in runs.items()
    }
    whole = 4 * runs["dpsgd"].parameters("hub/worker0").numel()
    assert sent["dpsgd"].count(whole) == sent["noloco"].count(2 * whole) > 0
