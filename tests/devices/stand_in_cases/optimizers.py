"""Optimizers on a GPU, for which the processor stands in: they go on from a state that was in main memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from testbed.devices.accelerator import accelerator_of, torch_device
from testbed.engine.checkpoint import in_main_memory
from testbed.training.optimizers import KeyOptimizer

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.mark.parametrize(
    ("kind", "options"), [("adam", {}), ("lars", {}), ("dcasgd", {}), ("dcasgd", {"adaptive": True, "momentum": 0.9})]
)
def test_a_state_that_was_in_main_memory_goes_on(kind: str, options: dict[str, Any]) -> None:
    accelerator, device = accelerator_of(torch_device("cuda")), torch_device("cuda")
    assert accelerator is not None
    whole, resumed = (KeyOptimizer(kind, options, torch.zeros(9, device=device)) for _ in range(2))

    def step(one: KeyOptimizer, member: str) -> list[float]:
        def moved() -> torch.Tensor:
            one.step(torch.ones(9, device=device), member)
            return one.value

        return accelerator.timed(moved)[0].cpu().tolist()

    step(whole, "a")
    whole.pulled("a", whole.value.clone())
    resumed.load_state(in_main_memory(whole.state()))
    for member in ("a", "b"):  # who has pulled, and who has not
        assert step(resumed, member) == step(whole, member)
