"""SparseLoCo is equal to a reference that reads like its paper, and its payload is as small as is published."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.training.optimizers import KeyOptimizer
from tests.methods.problem import STEPS, TOLERANCE, WORKERS, Problem, apart

CHUNK, K, BINS, SIGMAS, DECAY, LOCAL_STEPS, RATE = 64, 4, 4, 6.0, 0.95, 3, 0.02
OPTIONS = {"chunk": CHUNK, "k": K}


def reference(problem: Problem, rounds: int) -> Tensor:
    """Algorithm 1 of arXiv 2508.15706, with SGD inside, in plain PyTorch."""
    theta = problem.first.clone()
    errors = [torch.zeros(theta.numel()) for _ in range(WORKERS)]
    for _ in range(rounds):
        total = torch.zeros(theta.numel())
        for worker, error in enumerate(errors):
            local = theta.clone()
            for _ in range(LOCAL_STEPS):
                local -= RATE * problem.gradient(worker, local)
            error.mul_(DECAY).add_((theta - local).flatten())
            sent = quantised(top_k(error))
            error.sub_(sent)
            total += sent
        theta -= (total / WORKERS).view(problem.shape)
    return theta


def top_k(error: Tensor) -> Tensor:
    sent = torch.zeros_like(error)
    for start in range(0, len(error), CHUNK):
        chunk = error[start : start + CHUNK]
        count = -(-K * len(chunk) // CHUNK)
        for place in sorted(range(len(chunk)), key=lambda each: -abs(float(chunk[each])))[:count]:
            sent[start + place] = chunk[place]
    return sent


def quantised(sent: Tensor) -> Tensor:
    places = sent.nonzero().flatten()
    values = sent[places]
    width = SIGMAS * values.std() / BINS
    bins = ((values - values.mean()) / width + BINS / 2).round().clamp(0, BINS - 1)
    found = torch.zeros_like(sent)
    for number in range(BINS):
        inside = places[bins == number]
        found[inside] = sent[inside].mean() if len(inside) else 0.0
    return found


def ours(problem: Problem, rounds: int, options: dict[str, float] | None = None) -> Tensor:
    """The same by the codec and the outer optimizer."""
    ends = [(codec(options), codec(options)) for _ in range(WORKERS)]
    outer = KeyOptimizer("nesterov", {"learning_rate": 1.0, "momentum": 0.0}, problem.first.flatten())
    for _ in range(rounds):
        changes = []
        for worker, (child, server) in enumerate(ends):
            local = outer.value.view(problem.shape).clone()
            for _ in range(LOCAL_STEPS):
                local -= RATE * problem.gradient(worker, local)
            change = outer.value - local.flatten()
            changes.append(server.decode(0, child.encode(0, change), change.numel()))
        outer.step(torch.stack(changes).mean(0))
    return outer.value.view(problem.shape)


def codec(options: dict[str, float] | None = None) -> Codec:
    return make_codec("sparseloco", {**OPTIONS, **(options or {})}, changes=True)


def test_it_is_equal_to_the_reference_over_a_hundred_rounds() -> None:
    problem = Problem(10, 13)  # 130 elements: two chunks and a rest
    assert apart(ours(problem, STEPS), reference(problem, STEPS)) < TOLERANCE
    assert problem.loss(reference(problem, STEPS)) < 0.6 * problem.loss(problem.first)


def test_another_decay_is_another_method() -> None:
    problem = Problem(10, 13)
    assert apart(ours(problem, STEPS, {"decay": 1.0}), reference(problem, STEPS)) > 100 * TOLERANCE


def test_a_push_has_146_times_fewer_bytes() -> None:
    """64 values of 2 bits and their places of 12 bits, of 4 096 floats; and one set of bins a tensor."""
    size = 1 << 20
    parts = make_codec("sparseloco", {}).encode(0, torch.randn(size, generator=torch.Generator().manual_seed(1)))
    sent_bytes = sum(part.nbytes for part in parts)
    assert sent_bytes == size // 4096 * 64 * 14 // 8 + 16
    assert abs(4 * size / sent_bytes / 146.29 - 1) < 0.01


def test_with_all_elements_there_are_no_places() -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    dense = make_codec("sparseloco", {"k": 4096})
    codes, bins = dense.encode(0, tensor)
    assert (codes.nbytes, bins.nbytes) == (250, 16)
    arrived = dense.decode(0, (codes, bins), 1000)
    assert float(torch.corrcoef(torch.stack([arrived, tensor]))[0, 1]) > 0.9
