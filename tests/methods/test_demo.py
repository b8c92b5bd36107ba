"""DeMo is equal to a reference that reads like its paper, and its payload has the bytes that follow from its shape."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from testbed.codec.demo import cosines
from testbed.codec.table import make_codec
from testbed.key_shape import MATRIX, KeyShape
from testbed.training.optimizers import KeyOptimizer
from tests.for_each import for_each
from tests.methods.problem import STEPS, TOLERANCE, WORKERS, Problem, apart

CHUNK, K, DECAY, RATE = 4, 3, 0.9, 0.01


def reference(problem: Problem, steps: int) -> Tensor:
    """Algorithm 1 of arXiv 2411.19870 in plain PyTorch, tile by tile; both sides are multiples of the tile's."""
    theta = problem.first.clone()
    momenta = [torch.zeros_like(theta) for _ in range(WORKERS)]
    for _ in range(steps):
        total = torch.zeros_like(theta)
        for worker, momentum in enumerate(momenta):
            momentum.mul_(DECAY).add_(problem.gradient(worker, theta))
            for row in range(0, theta.shape[0], CHUNK):
                for column in range(0, theta.shape[1], CHUNK):
                    tile = momentum[row : row + CHUNK, column : column + CHUNK]
                    sent = largest_frequencies(tile)
                    tile.sub_(sent)
                    total[row : row + CHUNK, column : column + CHUNK] += sent
        theta -= RATE * total.sign()
    return theta


def largest_frequencies(tile: Tensor) -> Tensor:
    found = torch.zeros_like(tile)
    coefficients = {(p, q): float((tile * wave(p, q)).sum()) for p in range(CHUNK) for q in range(CHUNK)}
    for p, q in sorted(coefficients, key=lambda each: -abs(coefficients[each]))[:K]:
        found += coefficients[p, q] * wave(p, q)
    return found


def wave(p: int, q: int) -> Tensor:
    """Return the cosine wave of these frequencies over a tile, of norm 1."""

    def along(frequency: int) -> Tensor:
        cosine = torch.cos(math.pi * (torch.arange(CHUNK) + 0.5) * frequency / CHUNK)
        return cosine * math.sqrt((2 if frequency else 1) / CHUNK)

    return torch.outer(along(p), along(q))


def ours(problem: Problem, steps: int, **options: float) -> Tensor:
    """The same by the codec and the optimizer."""
    ends = []
    for _ in range(WORKERS):
        pair = [make_codec("demo", {"chunk": CHUNK, "k": K, "decay": DECAY, **options}) for _ in "cs"]
        for end in pair:
            end.declare(0, KeyShape(problem.shape, MATRIX))
        ends.append(pair)
    server = KeyOptimizer("signsgd", {"learning_rate": RATE}, problem.first.flatten())
    for _ in range(steps):
        values = server.value.view(problem.shape)
        gradients = [problem.gradient(worker, values).flatten() for worker in range(WORKERS)]
        arrived = [
            end.decode(0, child.encode(0, each), len(each)) for (child, end), each in zip(ends, gradients, strict=True)
        ]
        server.step(torch.stack(arrived).sum(0))
    return server.value.view(problem.shape)


def test_it_is_equal_to_the_reference_over_a_hundred_steps() -> None:
    problem = Problem(8, 12)
    assert apart(ours(problem, STEPS), reference(problem, STEPS)) < TOLERANCE
    assert problem.loss(reference(problem, STEPS)) < 0.6 * problem.loss(problem.first)
    assert apart(ours(problem, STEPS, decay=0.8), reference(problem, STEPS)) > 100 * TOLERANCE


@for_each(
    ("dimensions", "tiles", "elements"),
    [((128, 64), 2, 64 * 64), ((96, 50), 2, 48 * 50), ((16, 3, 5, 5), 3, 16 * 25), ((100,), 2, 50), ((67,), 67, 1)],
)
def test_bytes_follow_from_the_shape(dimensions: tuple[int, ...], tiles: int, elements: int) -> None:
    """Sides of tiles are the largest divisors up to 64; 32 coefficients of each are sent: float32, and their places."""
    size = math.prod(dimensions)
    codec = make_codec("demo", {})
    codec.declare(0, KeyShape(dimensions, MATRIX if len(dimensions) > 1 else "vector"))
    sent = min(32, elements)
    bits = max(1, (elements - 1).bit_length())
    parts = codec.encode(0, torch.ones(size))
    assert sum(part.nbytes for part in parts) == 4 * tiles * sent + -(-tiles * sent * bits // 8)


@for_each("length", [1, 2, 7, 64])
def test_the_transform_is_orthonormal(length: int) -> None:
    assert torch.allclose(cosines(length) @ cosines(length).T, torch.eye(length), atol=1e-6)
