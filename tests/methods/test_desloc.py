"""DES-LOC: moments are averaged at their own periods, as in a reference, and cost their bytes and no more."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from testbed.engine.learner import make_learner
from testbed.plan.model import Plan
from tests.engine.runs import run
from tests.methods.problem import apart

H, RATE, FIRST, SECOND, ROUNDS = 2, 0.004, 4, 2, 8
COMMON = (
    "training.model={kind: mlp, hidden: 8}",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=4",
    f"optimizer={{kind: adam, learning_rate: {RATE}}}",
)
OUTER = f"h: {H}, outer_learning_rate: 1, outer_momentum: 0"
MOMENTS = {"exp_avg": FIRST, "exp_avg_sq": SECOND}


def reference(plan: Plan) -> Tensor:
    """Local Adam of which parameters, first and second moments are averaged every H, H · FIRST, H · SECOND steps."""
    learners = [make_learner(plan, worker) for worker in plan.training_workers]
    models = [torch.cat(learner.values()).requires_grad_() for learner in [learners[0]] * len(learners)]
    optimizers = [torch.optim.Adam([model], lr=RATE) for model in models]
    for round_ in range(ROUNDS):
        for learner, model, optimizer in zip(learners, models, optimizers, strict=True):
            for step in range(round_ * H, (round_ + 1) * H):
                learner.load(list(torch.split(model.detach(), list(learner.sizes))))
                model.grad = torch.cat(learner.gradient(step).gradients)
                optimizer.step()
        averaged = [list(models)]
        for name, period in MOMENTS.items():
            if (round_ + 1) % period == 0:
                averaged.append([opt.state[model][name] for opt, model in zip(optimizers, models, strict=True)])
        for tensors in averaged:
            mean = torch.stack([each.detach() for each in tensors]).mean(0)
            for tensor in tensors:
                tensor.data.copy_(mean)
    return models[0].detach()


def test_it_is_equal_to_the_reference(tmp_path: Path) -> None:
    for tiers in ("hips", "ps"):
        moments = f"sync={{kind: diloco, {OUTER}, first_moments: {FIRST}, second_moments: {SECOND}}}"
        ended = run(tmp_path / tiers, moments, f"paradigm={tiers}", *COMMON)
        assert apart(ended.parameters("east/worker0"), reference(ended.plan)) < 1e-4


def test_moments_cost_their_bytes_and_no_more(tmp_path: Path) -> None:
    pushed = {}
    for name, more in (("diloco", ""), ("desloc", f", first_moments: {FIRST}, second_moments: {SECOND}")):
        ended = run(tmp_path / name, f"sync={{kind: diloco, {OUTER}{more}}}", *COMMON)
        model_bytes = 4 * ended.parameters("hub/worker0").numel()
        pushes = [
            event
            for event in ended.of_kind("transfer")
            if event["message"] == "push" and event["source"] == "west/server0"
        ]
        pushed[name] = sum(event["payload_bytes"] for event in pushes) / model_bytes
    assert pushed == {"diloco": ROUNDS, "desloc": ROUNDS + ROUNDS // FIRST + ROUNDS // SECOND}
