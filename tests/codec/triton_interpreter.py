"""Compares the kernels with the processor's form, bit by bit; run by ``test_selectors`` in Triton's interpreter."""

from __future__ import annotations

import torch

from testbed.codec.memory import HostMemory
from testbed.codec.selectors.on_device import DeviceMemory, TritonSweep
from testbed.codec.selectors.sources import NonFinite
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.codec.selectors.triton_kernels import BLOCK
from tests.codec import inputs

CPU = torch.device("cpu")


def by_kernels(size: int, momentum: float | None) -> DeviceMemory:
    return DeviceMemory(size, CPU, momentum, TritonSweep(size, CPU))


def compare(name: str, size: int, k: int, momentum: float | None) -> None:
    kernels, host = by_kernels(size, momentum), HostMemory(size, SampleAndSweep(), momentum)
    for round_ in range(2):
        gradient = torch.from_numpy(inputs.make(name, size, round_))
        taken = zip(kernels.take(gradient, k), host.take(gradient, k), strict=True)
        assert all(torch.equal(a, b) for a, b in taken), (name, size, k, momentum, round_)
        assert torch.equal(kernels.state()["unsent"], host.state()["unsent"]), (name, size, k, momentum, round_)


def refuses_what_is_not_finite() -> None:
    gradient = torch.from_numpy(inputs.make("one NaN", 5000))
    try:
        by_kernels(5000, None).take(gradient, 50)
    except NonFinite as error:
        assert error.count == 1
    else:
        raise AssertionError("a NaN went through")


def compare_all() -> None:
    for name in ("Student-t(3)", "one large layer", "outlier 1e30", "99.95 % zeros", "constant"):
        compare(name, 4 * BLOCK + 7, 40, None)
    for name in ("Student-t(3)", "constant"):
        compare(name, 4 * BLOCK, 9, 0.9)
    refuses_what_is_not_finite()


if __name__ == "__main__":
    compare_all()
