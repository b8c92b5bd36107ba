"""Muon is equal to a reference that reads like its author's description."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.key_shape import HEAD, MATRIX, TABLE, KeyShape
from testbed.training.optimizers import KeyOptimizer, ModelOptimizer
from testbed.training.optimizers.muon import orthogonalised
from tests.for_each import for_each
from tests.methods.problem import STEPS, TOLERANCE, Problem, apart

MOMENTUM, RATE, DECAY = 0.95, 0.02, 0.1
OPTIONS = {"learning_rate": RATE, "weight_decay": DECAY, "schedule": "cosine", "period": STEPS}


def reference(problem: Problem, steps: int) -> Tensor:
    """Muon in plain PyTorch, with a cosine that ends at a tenth."""
    weights = problem.first.clone()
    momentum = torch.zeros_like(weights)
    for step in range(steps):
        rate = RATE * (0.1 + 0.9 * (1 + torch.cos(torch.tensor(torch.pi * step / steps))) / 2)
        gradient = problem.gradient(0, weights)
        momentum = MOMENTUM * momentum + gradient
        update = newton_schulz(gradient + MOMENTUM * momentum)
        weights = weights * (1 - rate * DECAY) - rate * max(1, weights.shape[0] / weights.shape[1]) ** 0.5 * update
    return weights


def newton_schulz(matrix: Tensor) -> Tensor:
    x = matrix / matrix.norm()
    if x.shape[0] > x.shape[1]:
        return newton_schulz(matrix.T).T
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x - 4.7750 * a @ x + 2.0315 * a @ a @ x
    return x


@for_each("shape", [(6, 10), (10, 6)])
def test_it_is_equal_to_the_reference_over_a_hundred_steps(shape: tuple[int, int]) -> None:
    problem = Problem(*shape)
    key = KeyOptimizer("muon", OPTIONS, problem.first.flatten(), KeyShape(shape, MATRIX))
    for _ in range(STEPS):
        key.step(problem.gradient(0, key.value.view(shape)).flatten())
    assert apart(key.value.view(shape), reference(problem, STEPS)) < TOLERANCE
    assert problem.loss(key.value.view(shape)) < problem.loss(problem.first)


def test_singular_values_come_near_to_one() -> None:
    matrix = torch.randn(20, 30, generator=torch.Generator().manual_seed(1))
    found = torch.linalg.svdvals(orthogonalised(matrix))
    assert float(found.min()) > 0.6 and float(found.max()) < 1.3


@for_each("role", [HEAD, TABLE, "vector"])
def test_all_that_is_no_matrix_takes_the_steps_of_adamw(role: str) -> None:
    """With a rate of its own, which follows the schedule in every step."""
    gradient = torch.randn(6, generator=torch.Generator().manual_seed(1))
    common = {"weight_decay": 0.1, "warmup": 3, "schedule": "cosine", "period": 10}
    key = KeyOptimizer("muon", {**common, "adam_learning_rate": 0.004}, torch.ones(6), KeyShape((2, 3), role))
    plain = KeyOptimizer("adamw", {**common, "learning_rate": 0.004, "beta2": 0.95}, torch.ones(6))
    for each in (key, plain):
        for step in range(12):
            each.step(gradient * (-0.5) ** step)
    assert torch.allclose(key.value, plain.value, rtol=1e-6)


def test_a_model_gives_each_key_its_shape() -> None:
    shapes = (KeyShape((2, 3), MATRIX), KeyShape((3,)))
    model = ModelOptimizer("muon", {}, [torch.ones(6), torch.ones(3)], shapes)
    gradients = [torch.arange(6.0), torch.arange(3.0)]
    model.step(gradients)
    for value, gradient, shape in zip(model.values(), gradients, shapes, strict=True):
        alone = KeyOptimizer("muon", {}, torch.ones(len(gradient)), shape)
        alone.step(gradient)
        assert torch.equal(value, alone.value)
