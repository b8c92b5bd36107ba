"""Compares the GPU form with the CPU form, bit by bit; run by ``test_selectors`` in Triton's interpreter."""

from __future__ import annotations

import torch

from testbed.codec.memory import HostMemory, ResidualMemory
from testbed.codec.selectors.cuda import CudaMemory
from testbed.codec.selectors.sources import NonFinite
from testbed.codec.selectors.sweep import SampleAndSweep
from tests.codec import inputs

CPU = torch.device("cpu")


def cpu_memory(size: int, momentum: float | None) -> ResidualMemory:
    select = SampleAndSweep()
    return HostMemory(size, select, momentum)


def compare(name: str, size: int, k: int, momentum: float | None) -> None:
    gpu, cpu = CudaMemory(size, CPU, momentum), cpu_memory(size, momentum)
    for round_ in range(2):
        gradient = torch.from_numpy(inputs.make(name, size, round_))
        taken = zip(gpu.take(gradient, k), cpu.take(gradient, k), strict=True)
        assert all(torch.equal(a, b) for a, b in taken), (name, size, k, momentum, round_)
        assert torch.equal(gpu.unsent(), cpu.unsent()), (name, size, k, momentum, round_)


def refuses_what_is_not_finite() -> None:
    gradient = torch.from_numpy(inputs.make("one NaN", 5000))
    try:
        CudaMemory(5000, CPU, None).take(gradient, 50)
    except NonFinite as error:
        assert error.count == 1
    else:
        raise AssertionError("a NaN went through")


if __name__ == "__main__":
    for input_name in inputs.FINITE:
        compare(input_name, 160_007, 1600, None)
    for input_name in ("Student-t(3)", "one large layer", "constant"):
        compare(input_name, 157 * 1024, 157, 0.9)
    refuses_what_is_not_finite()
