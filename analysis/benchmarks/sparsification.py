"""One step of sparsification on a CPU: this project's selectors against ``torch.topk``, with error feedback.

    python -m analysis.benchmarks sparsification --elements 1e6,1e7,1e8 --shares 0.001,0.01 --repeats 5

Gradients are heavy-tailed (Student's t with 3 degrees of freedom); each block of a layer's size has a scale of its own.
Residuals have accumulated over some rounds before the clock starts. Every method has one thread and gets the same
gradients; methods alternate within each repeat. The table shows medians, and how many times faster than ``torch.topk``
each is. The times of this project's selectors include the check for NaN and infinities and the copies that become the
payload; those of ``torch.topk`` and of the bare sum do not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from analysis.benchmarks.harness import Benchmark, Row, alternate, listed, medians
from testbed.codec.errors import check_finite
from testbed.codec.memory import HostMemory, Select
from testbed.codec.pairs import entries
from testbed.codec.selectors.bisection import Bisection
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sweep import SampleAndSweep

Step = Callable[[Tensor], tuple[Tensor, Tensor] | None]

LAYER = 250_000  # elements with one scale
WARM_UP_ROUNDS = 4
BASELINE = "torch.topk"


def gradients(size: int, seed: int, count: int = 2) -> list[Tensor]:
    """Heavy-tailed gradients; layers keep their scale from one gradient to the next."""
    layers = -(-size // LAYER)
    scales = np.random.default_rng(seed).lognormal(np.log(1e-4), 1.0, layers).astype(np.float32)
    return [_gradient(size, scales, np.random.default_rng((seed, number))) for number in range(count)]


def _gradient(size: int, scales: np.ndarray, random: np.random.Generator) -> Tensor:
    numbers = np.empty(size, np.float32)
    for layer, scale in enumerate(scales):
        part = numbers[layer * LAYER : (layer + 1) * LAYER]
        part[:] = random.standard_t(3, part.size) * scale
    return torch.from_numpy(numbers)


def methods(size: int, k: int, residual: Tensor) -> dict[str, Step]:
    """The steps to compare, each with a memory of its own that begins at ``residual``."""
    return {
        "residual += gradient, nothing else": _bare_sum(residual.clone()),
        BASELINE: _torch_topk(residual.clone(), k),
        "sample and sweep": _feedback(size, k, residual, SampleAndSweep()),
        "sample and sweep, momentum-corrected": _momentum(size, k, residual),
        "MSTopK repaired (bisection on bits)": _feedback(size, k, residual, Bisection()),
        "MSTopK as published, 30 samplings": _feedback(size, k, residual, PublishedMsTopk()),
    }


def _bare_sum(residual: Tensor) -> Step:
    def step(gradient: Tensor) -> None:
        residual.add_(gradient)

    return step


def _torch_topk(residual: Tensor, k: int) -> Step:
    def step(gradient: Tensor) -> tuple[Tensor, Tensor]:
        residual.add_(gradient)
        indices = torch.topk(residual.abs(), k, sorted=False).indices
        values = residual[indices]
        residual[indices] = 0
        return indices, values

    return step


def _feedback(size: int, k: int, residual: Tensor, select: Select) -> Step:
    memory = HostMemory(size, select)
    memory.unsent().copy_(residual)
    return _checked(memory, k)


def _momentum(size: int, k: int, residual: Tensor) -> Step:
    memory = HostMemory(size, SampleAndSweep(), 0.9)
    memory.unsent().copy_(residual)
    return _checked(memory, k)


def _checked(memory: HostMemory, k: int) -> Step:
    def step(gradient: Tensor) -> tuple[Tensor, Tensor]:
        check_finite(0, gradient)
        return memory.take(gradient, k)

    return step


def gathered_residual(size: int, k: int, seed: int) -> Tensor:
    """What error feedback leaves after some rounds."""
    memory = HostMemory(size, SampleAndSweep())
    for gradient in gradients(size, seed + 1, WARM_UP_ROUNDS):
        memory.take(gradient, k)
    return memory.unsent()


def measure(size: int, share: float, repeats: int, seed: int) -> dict[str, float]:
    """Median seconds of each method; after checking that the exact ones choose the same entries."""
    k = entries(size, share)
    steps = methods(size, k, gathered_residual(size, k, seed))
    inputs = gradients(size, seed + 1)
    taken = {name: step(inputs[0]) for name, step in steps.items()}  # warms up as well
    _check_same(taken[BASELINE], taken["sample and sweep"])
    _check_same(taken[BASELINE], taken["MSTopK repaired (bisection on bits)"])
    timed = {name: _on_input(step, inputs) for name, step in steps.items()}
    return medians(alternate(timed, repeats))


def _on_input(step: Step, inputs: list[Tensor]) -> Callable[[int], object]:
    return lambda repeat: step(inputs[(repeat + 1) % len(inputs)])


def _check_same(one: tuple[Tensor, Tensor] | None, other: tuple[Tensor, Tensor] | None) -> None:
    """The same values were taken (which of equal ones is torch's choice)."""
    assert one is not None and other is not None
    if not torch.equal(one[1].sort().values, other[1].sort().values):
        raise AssertionError("two exact selectors took different values")


def compare(options: argparse.Namespace) -> Iterator[Row]:
    """One row per case and method."""
    torch.set_num_threads(1)
    for size in map(int, options.elements):
        for share in options.shares:
            median_s = measure(size, share, options.repeats, options.seed)
            for name, value_s in median_s.items():
                times_faster = median_s[BASELINE] / value_s
                yield {"elements": size, "share": share, "method": name.ljust(40), "ms": value_s * 1e3,
                       "times_faster": times_faster}  # fmt: skip


BENCHMARK = Benchmark(
    measure=compare,
    arguments={
        "--elements": {"type": listed(float), "default": (1e6, 1e7, 1e8), "metavar": "N,…"},
        "--shares": {"type": listed(float), "default": (0.001, 0.01), "metavar": "SHARE,…"},
        "--repeats": {"type": int, "default": 5},
        "--seed": {"type": int, "default": 0},
    },
)
