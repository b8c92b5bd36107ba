"""DeCo-SGD: late and compressed gradients are equal to a reference, and τ and δ are those with the least harm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from testbed.codec.pairs import entries
from testbed.engine.learner import make_learner
from testbed.plan.model import Plan
from testbed.policy.events import Pace, Push, WorkerReport
from testbed.policy.sync.base import Tier
from testbed.policy.sync.deco import DeCo, chosen, harm
from tests.end_to_end.runs import run_scenario
from tests.engine.runs import THREE_SITES, run
from tests.for_each import for_each
from tests.methods.problem import apart

RATE, SHARE, BOUND, ROUNDS = 0.02, 0.1, 100, 12
COMMON = (
    "training.model={kind: mlp, hidden: 16}",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=6",
    f"optimizer={{kind: sgd, learning_rate: {RATE}}}",
    f"codec={{kind: topk, ratio: {SHARE}, bound: {BOUND}, pull: sparse-sum}}",
    "paradigm=ps",
)
FIXED = "sync={{kind: deco, adaptive: false, staleness: {}}}"


def reference(plan: Plan, staleness: int) -> Tensor:
    """Delayed SGD with error feedback, each tensor by itself, from each worker's own gradients."""
    learners = [make_learner(plan, worker) for worker in plan.training_workers]
    sizes = list(learners[0].sizes)
    theta = torch.cat(learners[0].values())
    errors = [[torch.zeros(size) for size in sizes] for _ in learners]
    sums: list[Tensor] = []
    for step in range(ROUNDS + staleness):
        if step >= staleness + 1 or step >= ROUNDS:
            theta = theta - RATE * sums[step - staleness - 1] / len(learners)
        if step >= ROUNDS:
            continue
        sent = []
        for learner, kept in zip(learners, errors, strict=True):
            learner.load(list(torch.split(theta, sizes)))
            mine = []
            for key, gradient in enumerate(learner.gradient(step).gradients):
                wanted = kept[key] + gradient
                count = entries(len(wanted), SHARE) if len(wanted) >= BOUND else len(wanted)
                places = wanted.abs().topk(count).indices
                mine.append(torch.zeros_like(wanted).index_copy_(0, places, wanted[places]))
                kept[key] = wanted - mine[-1]
            sent.append(torch.cat(mine))
        sums.append(torch.stack(sent).sum(0))
    return theta - RATE * sums[-1] / len(learners)


@for_each("staleness", [0, 3])
def test_it_is_equal_to_the_reference(staleness: int, tmp_path: Path) -> None:
    ended = run(tmp_path, *COMMON, FIXED.format(staleness))
    assert len(ended.hashes()) == 1
    assert apart(ended.parameters("east/worker0"), reference(ended.plan, staleness)) < 1e-5
    assert apart(ended.parameters("east/worker0"), reference(ended.plan, 3 - staleness)) > 1e-3


def test_worlds_agree_and_values_may_come_from_servers(tmp_path: Path) -> None:
    texts = (*COMMON, FIXED.format(2), "training.rounds=6", "device.step_time=1 ms")
    local = run_scenario(tmp_path / "local", "local", *texts, scenario=THREE_SITES)
    assert local.outcome.status == "done", local.outcome.message
    assert local.hashes("worker") == run(tmp_path / "simulated", *texts).hashes()
    plain = [*(text for text in COMMON if not text.startswith(("codec", "paradigm"))), FIXED.format(2)]
    rates = {"global": RATE / 4, "worker": RATE}  # servers step along the sum
    places = {
        f"{at} {paradigm}": (f"optimizer.at={at}", f"optimizer.learning_rate={rate}", f"paradigm={paradigm}")
        for at, rate in rates.items()
        for paradigm in ("ps", "hips")
    }
    ended = {name: run(tmp_path / name, *plain, *where) for name, where in places.items()}
    for each in ended.values():
        assert apart(each.parameters("west/worker0"), ended["global ps"].parameters("west/worker0")) < 1e-5
        assert each.round_s("west/worker0") == pytest.approx(0.1, rel=0.02)  # there and back within two steps


def test_nobody_waits_where_answers_may_be_late_enough(tmp_path: Path) -> None:
    """The model's 600 KB take 0.24 s at 20 Mbit/s, so that whole gradients delay steps of 0.1 s, however late."""
    large = (*COMMON, "training.model={kind: mlp, hidden: 2000}", "training.rounds=40", "training.compute=modelled")
    sync = "sync={kind: deco, every: 8}"
    adaptive = run(tmp_path / "adaptive", *large, "training.evaluate_every=40", sync)
    assert adaptive.round_s("west/worker0", skip=20) < 0.11
    dense = run(tmp_path / "dense", *large, "training.evaluate_every=40", sync, "codec=none")
    assert dense.round_s("west/worker0", skip=20) > 0.2


def test_staleness_and_share_have_the_least_harm() -> None:
    """T = 0.1 s, b = 0.25 s, S/a = 1 s: a tenth keeps the link busy all the time, and its sum is back after 0.35 s."""
    assert chosen(0.1, 0.25, 1.0, 20, True) == Pace(4, pytest.approx(0.1))
    assert harm(0.1, 4) < min(harm(0.05, 3), harm(0.1, 5))
    assert chosen(0.1, 0.25, 0.05, 20, True) == Pace(3, 1.0)  # a fast link: nothing needs to be kept back
    assert chosen(0.1, 0.25, 1.0, 20, False) == Pace(13, 1.0)  # nothing can be
    assert chosen(0.1, 5.0, 1.0, 20, True) == Pace(20, pytest.approx(1e-4))  # no τ is enough
    assert harm(1.0, 3) == 0


def test_it_chooses_from_reports_of_rounds_at_the_present_pace() -> None:
    policy = DeCo(Tier.of("a", "b", adjustable=True), DeCo.Options(every=4, share=0.1))

    def pace(round_: int, transfer_s: float) -> Pace | None:
        """Return what a round's answer says when both have reported ``transfer_s``."""
        for member in "ab":
            report = WorkerReport(0.1, transfer_s, 0.25)
            effects = policy.on_push(Push(member, 0, round_, reports={f"{member}/worker0": report}))
        return effects[-1].pace

    first, second = Pace(2, 0.1), Pace(4, pytest.approx(0.1))
    assert [pace(round_, 0.1) for round_ in range(8)] == [first] * 8  # some are of the codec's own share
    assert pace(8, 0.1) == second
    assert [pace(round_, 9.0) for round_ in range(9, 16)] == [second] * 7  # of the pace before
    assert [pace(round_, 0.2) for round_ in (16, 17)] == [second] * 2
    assert pace(18, 0.2) == Pace(4, pytest.approx(0.05))


def test_it_chooses_when_all_workers_have_told() -> None:
    policy = DeCo(Tier.of("near", "far", adjustable=True), DeCo.Options(every=1, share=0.1))
    reports = {"near": WorkerReport(0.1, 0.001, 0.0), "far": WorkerReport(0.1, 0.1, 0.25)}
    for round_ in range(20):
        for member, report in reports.items():
            told = {member: report} if member == "near" or round_ in (0, *range(12, 15)) else {}
            effects = policy.on_push(Push(member, 0, round_, reports=told))
        assert effects[-1].pace == (Pace(2, 0.1) if round_ < 14 else Pace(4, pytest.approx(0.1)))
