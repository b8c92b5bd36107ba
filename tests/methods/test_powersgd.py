"""PowerSGD is equal to a reference that reads like its paper, and its sums have the bytes that follow from shapes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from testbed.codec.base import SummedCodec, advanced
from testbed.codec.powersgd import PowerSgd
from testbed.codec.table import make_codec
from testbed.engine.learner import make_learner
from testbed.key_shape import MATRIX, KeyShape
from testbed.plan.model import Plan
from tests.end_to_end.runs import run_scenario
from tests.engine.runs import THREE_SITES, Simulated, run
from tests.methods.problem import STEPS, TOLERANCE, WORKERS, Problem, apart

RANK, START, RATE, SEED = 2, 5, 0.02, 3


def reference(problem: Problem, steps: int) -> Tensor:
    """Algorithms 1 and 2 of arXiv 1905.13727 in plain PyTorch, with Gram-Schmidt, and plain sums at first."""
    theta = problem.first.clone()
    errors = [torch.zeros_like(theta) for _ in range(WORKERS)]
    q = torch.randn(theta.shape[1], RANK, generator=torch.Generator().manual_seed(SEED)).to(theta)
    for step in range(steps):
        gradients = [problem.gradient(worker, theta) for worker in range(WORKERS)]
        if step < START:
            theta -= RATE * sum(gradients)
            continue
        matrices = [gradient + error for gradient, error in zip(gradients, errors, strict=True)]
        p = gram_schmidt(sum(matrix @ q for matrix in matrices) / WORKERS)
        q = sum(matrix.T @ p for matrix in matrices) / WORKERS
        approximation = p @ q.T
        errors = [matrix - approximation for matrix in matrices]
        theta -= RATE * WORKERS * approximation
    return theta


def gram_schmidt(matrix: Tensor) -> Tensor:
    columns: list[Tensor] = []
    for column in matrix.T:
        rest = column - sum(((before @ column) * before for before in columns), torch.zeros_like(column))
        columns.append(rest / rest.norm())
    return torch.stack(columns, dim=1)


def ours(problem: Problem, steps: int, **options: int) -> Tensor:
    """The same by codecs whose payloads are summed."""
    theta = problem.first.flatten().clone()
    codecs = [summed_codec(problem.shape, **options) for _ in range(WORKERS)]
    for _ in range(steps):
        values = theta.view(problem.shape)
        gradients = [problem.gradient(worker, values).flatten() for worker in range(WORKERS)]
        theta -= RATE * summed(codecs, gradients)[0]
    return theta.view(problem.shape)


def summed_codec(shape: tuple[int, ...], **options: int) -> SummedCodec:
    codec = make_codec("powersgd", {"rank": RANK, "start": START, **options}, seed=SEED)
    assert isinstance(codec, PowerSgd)
    codec.declare(0, KeyShape(shape, MATRIX))
    return codec


def summed(codecs: list[SummedCodec], tensors: list[Tensor], key: int = 0) -> list[Tensor]:
    """Let all workers ask for sums in step; return what each makes of them."""
    steps = [codec.summing(key, tensor, len(codecs)) for codec, tensor in zip(codecs, tensors, strict=True)]
    found = [advanced(each, None) for each in steps]
    while found[0][0] is not None:
        payloads = [parts for parts, _ in found if parts is not None]
        totals = tuple(torch.stack(parts).sum(0) for parts in zip(*payloads, strict=True))
        found = [advanced(each, totals) for each in steps]
    return [total for _, total in found if total is not None]


def test_it_is_equal_to_the_reference_over_a_hundred_steps() -> None:
    """In float64: where singular values are alike, as here, what is rounded in one step grows in the next ones."""
    problem = Problem(12, 9, torch.float64)
    assert apart(ours(problem, STEPS), reference(problem, STEPS)) < TOLERANCE
    assert problem.loss(reference(problem, STEPS)) < 0.6 * problem.loss(problem.first)
    assert apart(ours(problem, STEPS, rank=1), reference(problem, STEPS)) > 100 * TOLERANCE


def test_alone_a_payload_has_both_factors() -> None:
    tensor = torch.randn(30 * 20, generator=torch.Generator().manual_seed(1))
    child, server = (summed_codec((30, 20), start=0) for _ in "cs")
    parts = child.encode(0, tensor)
    assert sum(part.nbytes for part in parts) == 4 * RANK * (30 + 20)
    (total,) = summed([summed_codec((30, 20), start=0)], [tensor])
    assert torch.allclose(server.decode(0, parts, 600), total, atol=1e-5)


def test_in_all_reduce_both_factors_are_summed_to_the_byte(tmp_path: Path) -> None:
    """Around a ring of four each worker sends 2 · 3/4 of what is summed; vectors and the small head as they are."""
    settings = ("training.model={kind: mlp, hidden: 40}", "training.rounds=3", "paradigm=allreduce")
    done = run(tmp_path, *settings, "optimizer={kind: sgd, learning_rate: 0.05}", "codec={kind: powersgd, rank: 2}")
    assert len(done.hashes()) == 1
    sent: Counter[int] = Counter()
    for event in done.of_kind("transfer"):
        if event["message"] == "collective" and event["round"] == 1:
            sent[event["key"]] += event["payload_bytes"]
    numbers = 2 * (40 + 64) + 40 + 2 * (10 + 40) + 10
    assert sum(sent.values()) == 4 * 6 * numbers


def test_a_lost_worker_leaves_the_others_with_one_model(tmp_path: Path) -> None:
    settings = ("training.model={kind: mlp, hidden: 40}", "training.rounds=8", "paradigm=allreduce", "codec=powersgd")
    kill = "faults=[{kind: kill, node: west/worker0, round: 3}]"
    done = run(tmp_path, *settings, "optimizer={kind: sgd, learning_rate: 0.05}", "recovery.on_failure=continue", kill)
    assert len(done.hashes()) == 1


def trained(directory: Path, *texts: str) -> Simulated:
    sites = "{name: hub, central: true, workers: 1}, {name: east, workers: 1}, {name: west, workers: 1}"
    settings = ("training.model={kind: mlp, hidden: 40}", "training.rounds=12", "training.evaluate_every=12")
    return run(directory, *settings, f"topology.data_centers=[{sites}]", *texts)


def by_codecs(plan: Plan, rate: float, rounds: int) -> Tensor:
    """The model at the end where codecs ask each other for sums, and each worker steps along the mean."""
    learners = [make_learner(plan, worker) for worker in plan.training_workers]
    codecs = [summed_codec((1, 1), start=3) for _ in learners]
    for codec in codecs:
        for key, shape in enumerate(learners[0].shapes):
            codec.declare(key, shape)
    values = learners[0].values()
    for step in range(rounds):
        for learner in learners:
            learner.load(values)
        gradients = [learner.gradient(step).gradients for learner in learners]
        totals = [summed(codecs, [each[key] for each in gradients], key)[0] for key in range(len(values))]
        values = [value - rate * total / len(learners) for value, total in zip(values, totals, strict=True)]
    return torch.cat(values)


def test_servers_sum_both_factors_where_workers_run_the_optimizer(tmp_path: Path) -> None:
    """On one tier, and of data centres on two; otherwise each worker has factors of its own."""
    codec = "{kind: powersgd, rank: 2, start: 3}"
    at_workers = ("optimizer={kind: sgd, learning_rate: 0.06, at: worker}", f"seed={SEED}")
    flat = trained(tmp_path / "flat", "paradigm=ps", f"codec={codec}", *at_workers)
    tiers = trained(tmp_path / "tiers", f"codec={{tier1: none, tier2: {codec}}}", *at_workers)
    for each in (flat, tiers):
        assert len({end["parameters_sha256"] for end in each.of_kind("final") if end["role"] == "worker"}) == 1
        assert apart(each.parameters("west/worker0"), by_codecs(flat.plan, 0.06, rounds=12)) < 1e-4
    pushes = [event for event in flat.of_kind("transfer") if event["message"] == "push" and event["round"] == 5]
    numbers = 2 * (40 + 64) + 40 + 2 * (10 + 40) + 10
    assert sum(event["payload_bytes"] for event in pushes) == 3 * 4 * numbers
    at_servers = ("optimizer={kind: sgd, learning_rate: 0.02, at: global}", f"seed={SEED}")
    alone = trained(tmp_path / "alone", "paradigm=ps", f"codec={codec}", *at_servers)
    assert apart(alone.parameters("west/worker0"), flat.parameters("west/worker0")) > 1e-2


def test_worlds_agree_on_sums_in_steps(tmp_path: Path) -> None:
    texts = ("training.model={kind: mlp, hidden: 40}", "training.rounds=5", "device.step_time=1 ms")
    codec = "codec={tier1: none, tier2: {kind: powersgd, start: 2}}"
    more = (*texts, codec, "optimizer={kind: sgd, learning_rate: 0.06, at: worker}")
    local = run_scenario(tmp_path / "local", "local", *more, scenario=THREE_SITES)
    assert local.outcome.status == "done", local.outcome.message
    assert local.hashes("worker") <= run(tmp_path / "simulated", *more).hashes()
