"""The GPU's form of selection chooses what the processor's does: in torch, and by kernels in Triton's interpreter.

Whole codecs on a GPU: ``tests/devices/stand_in_cases/codecs.py``.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from testbed.codec.memory import HostMemory
from testbed.codec.selectors.on_device import DeviceMemory, exact
from testbed.codec.selectors.sources import NonFinite
from testbed.codec.selectors.sweep import SampleAndSweep
from tests.codec import inputs
from tests.for_each import for_each

TRITON = Path(sys.prefix, "triton")  # where setup.sh puts it


@for_each("name", inputs.FINITE)
@for_each("momentum", [None, 0.9])
def test_the_choice_is_that_of_the_processor(name: str, momentum: float | None) -> None:
    size, k = 3001, 31
    there = DeviceMemory(size, torch.device("cpu"), momentum, exact)
    here = HostMemory(size, SampleAndSweep(), momentum)
    for round_ in range(2):
        gradient = torch.from_numpy(inputs.make(name, size, round_))
        assert all(torch.equal(a, b) for a, b in zip(there.take(gradient, k), here.take(gradient, k), strict=True))
        assert torch.equal(there.state()["unsent"], here.state()["unsent"])


def test_numbers_that_are_not_finite_are_counted() -> None:
    with pytest.raises(NonFinite) as caught:
        DeviceMemory(5000, torch.device("cpu"), None, exact).take(torch.from_numpy(inputs.make("one NaN", 5000)), 50)
    assert caught.value.count == 1


@pytest.mark.skipif(not (TRITON.is_dir() or find_spec("triton")), reason="needs Triton: ./setup.sh --tests")
def test_triton_kernels_choose_the_same() -> None:
    """In a process of its own, as Triton reads when it is imported that it is to interpret."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ["TRITON_INTERPRET"] = "1"
            sys.path.append(str(TRITON))
            importlib.import_module("tests.codec.triton_interpreter").compare_all()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
