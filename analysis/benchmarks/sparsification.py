"""One step of sparsification on a CPU: this project's selectors against ``torch.topk``, with error feedback.

    testbed bench sparsification --elements 1e6,1e7,1e8 --shares 0.001,0.01 --repeats 5

Gradients are heavy-tailed (Student's t with 3 degrees of freedom); each block of a layer's size has a scale of its own.
Residuals have accumulated over some rounds before the clock starts. Every method has one thread and gets the same
gradients; methods alternate within each repeat. The table shows medians, and how many times faster than ``torch.topk``
each is. The times of this project's selectors include the check for NaN and infinities and the copies that become the
payload; those of ``torch.topk`` and of the bare sum do not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.benchmarks.harness import Benchmark, Row, alternate, listed
from testbed.codec.errors import check_finite
from testbed.codec.memory import HostMemory
from testbed.codec.pairs import entries
from testbed.codec.selectors.bisection import Bisection
from testbed.codec.selectors.mstopk import PublishedMsTopk
from testbed.codec.selectors.sweep import SampleAndSweep

Step = Callable[[Tensor], Any]

LAYER = 250_000  # elements with one scale
WARM_UP_ROUNDS = 4
BASELINE = "torch.topk"
EXACT = ("sample and sweep", "MSTopK repaired (bisection on bits)")


def gradients(size: int, seed: int, count: int = 2) -> list[Tensor]:
    """Heavy-tailed gradients; layers keep their scale from one gradient to the next."""
    layers = -(-size // LAYER)
    scales = np.random.default_rng(seed).lognormal(np.log(1e-4), 1.0, layers).astype(np.float32)
    found = []
    for number in range(count):
        random, numbers = np.random.default_rng((seed, number)), np.empty(size, np.float32)
        for layer, scale in enumerate(scales):
            part = numbers[layer * LAYER : (layer + 1) * LAYER]
            part[:] = random.standard_t(3, part.size) * scale
        found.append(torch.from_numpy(numbers))
    return found


def methods(size: int, k: int, residual: Tensor) -> dict[str, Step]:
    """The steps to compare, each with a memory of its own that begins at ``residual``."""

    def selecting(memory: HostMemory) -> Step:
        memory.unsent().copy_(residual)

        def step(gradient: Tensor) -> tuple[Tensor, Tensor]:
            check_finite(0, gradient)
            return memory.take(gradient, k)

        return step

    unsent = residual.clone()

    def torch_topk(gradient: Tensor) -> tuple[Tensor, Tensor]:
        unsent.add_(gradient)
        indices = torch.topk(unsent.abs(), k, sorted=False).indices
        values = unsent[indices]
        unsent[indices] = 0
        return indices, values

    return {
        "residual += gradient, nothing else": residual.clone().add_,
        BASELINE: torch_topk,
        "sample and sweep": selecting(HostMemory(size, SampleAndSweep())),
        "sample and sweep, momentum-corrected": selecting(HostMemory(size, SampleAndSweep(), 0.9)),
        "MSTopK repaired (bisection on bits)": selecting(HostMemory(size, Bisection())),
        "MSTopK as published, 30 samplings": selecting(HostMemory(size, PublishedMsTopk())),
    }


def gathered_residual(size: int, k: int, seed: int) -> Tensor:
    """What error feedback leaves after some rounds."""
    memory = HostMemory(size, SampleAndSweep())
    for gradient in gradients(size, seed + 1, WARM_UP_ROUNDS):
        memory.take(gradient, k)
    return memory.unsent()


def measure(size: int, share: float, repeats: int, seed: int) -> dict[str, float]:
    """Median seconds of each method; after checking that the exact ones take the same values."""
    k = entries(size, share)
    steps = methods(size, k, gathered_residual(size, k, seed))
    inputs = gradients(size, seed + 1)
    taken = {name: step(inputs[0]) for name, step in steps.items()}  # warms up as well
    ordered = [taken[name][1].sort().values for name in (BASELINE, *EXACT)]  # which of equal ones is torch's choice
    if not all(torch.equal(ordered[0], other) for other in ordered[1:]):
        raise AssertionError("two exact selectors took different values")
    timed = {name: lambda repeat, step=step: step(inputs[(repeat + 1) % 2]) for name, step in steps.items()}
    return {name: median(times_s) for name, times_s in alternate(timed, repeats).items()}


def compare(options: argparse.Namespace) -> Iterator[Row]:
    """One row per case and method."""
    torch.set_num_threads(1)
    for size, share in product(map(int, options.elements), options.shares):
        median_s = measure(size, share, options.repeats, options.seed)
        for name, value_s in median_s.items():
            yield {"elements": size, "share": share, "method": name.ljust(40), "ms": value_s * 1e3,
                   "times_faster": median_s[BASELINE] / value_s}  # fmt: skip


BENCHMARK = Benchmark(
    measure=compare,
    arguments={
        "--elements": {"type": listed(float), "default": (1e6, 1e7, 1e8), "metavar": "N,…"},
        "--shares": {"type": listed(float), "default": (0.001, 0.01), "metavar": "SHARE,…"},
        "--repeats": {"type": int, "default": 5},
        "--seed": {"type": int, "default": 0},
    },
)
