"""Training through codecs in both directions reaches nearly the accuracy of training without them.

Two parties, half of scikit-learn's handwritten digits each; their gradients go up, a server with SGD sums them, and
the parameters come down: HiPS' second tier, without a network.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.codec.table import make_codec

PARTIES, BATCH, ROUNDS = 2, 64, 250
SHAPES = ((64, 128), (128,), (128, 10), (10,))


@cache
def data() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits  # which takes a second to load

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(digits.data, dtype=torch.float32)[order] / 16, torch.tensor(digits.target)[order]


def first_values() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).reshape(-1) * (0.1 if len(shape) == 2 else 0) for shape in SHAPES]


def logits(values: list[Tensor], inputs: Tensor) -> Tensor:
    weights = [value.view(shape) for value, shape in zip(values, SHAPES, strict=True)]
    return torch.relu(inputs @ weights[0] + weights[1]) @ weights[2] + weights[3]


def gradients(values: list[Tensor], inputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    leaves = [value.clone().requires_grad_() for value in values]
    return torch.autograd.grad(torch.nn.functional.cross_entropy(logits(leaves, inputs), labels), leaves)


@cache
def accuracy(kind: str, options: tuple[tuple[str, Any], ...] = (), rate: float = 0.05) -> float:
    """After ``ROUNDS`` rounds, on data that was not trained on, of what the first party holds."""
    inputs, labels = data()
    server = first_values()
    held = [list(server) for _ in range(PARTIES)]
    ends = [[make_codec(kind, dict(options), 2, PARTIES) for _ in ("child", "server")] for _ in range(PARTIES)]
    for key, value in enumerate(server):
        for end in (end for pair in ends for end in pair):
            end.begin(key, value)
    for round_ in range(ROUNDS):
        sums = [torch.zeros_like(value) for value in server]
        for party, (child, parent) in enumerate(ends):
            chosen = torch.randint(700, (BATCH,), generator=torch.Generator().manual_seed(round_)) + 700 * party
            for key, gradient in enumerate(gradients(held[party], inputs[chosen], labels[chosen])):
                sums[key] += parent.decode(key, child.encode(key, gradient.reshape(-1)), gradient.numel())
        server = [value - rate * total for value, total in zip(server, sums, strict=True)]
        for party, (child, parent) in enumerate(ends):
            held[party] = [
                child.decode_value(key, parent.encode_value(key, value), value.numel())
                for key, value in enumerate(server)
            ]
    return float((logits(held[0], inputs[1400:]).argmax(1) == labels[1400:]).float().mean())


@pytest.mark.sample(1)  # of 6, which take 11 s
@pytest.mark.parametrize(
    ("kind", "options", "rate"),
    [
        ("fp16", {}, 0.05),
        ("twobit", {"threshold": 0.02}, 0.05),
        # momentum correction makes steps larger for what waits long, so the rate is smaller
        ("bisparse", {}, 0.02),
        ("dgc", {"ratio": 0.02, "pull_ratio": 0.1}, 0.02),
        ("mpq", {}, 0.02),
        ("topk", {}, 0.05),
    ],
)
def test_accuracy_is_close_to_that_of_dense_training(kind: str, options: dict[str, Any], rate: float) -> None:
    dense = accuracy("none")
    assert dense > 0.93
    assert accuracy(kind, tuple(options.items()), rate) > dense - 0.03


def test_random_entries_at_a_small_ratio_fall_behind() -> None:
    """So that the comparison above can fail."""
    assert accuracy("randomk", (("ratio", 0.002), ("pull", "dense"))) < accuracy("none") - 0.03
