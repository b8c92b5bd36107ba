"""GPUs: who gets which, what is chosen there, and what was measured on them."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, edit

INVENTORY, CHOICE = ("tests/devices/test_inventory.py",), ("tests/codec/test_on_device.py",)
MUTATIONS: dict[str, Mutation] = {
    "GPUs are filled by rank": Mutation(
        "testbed.devices.inventory:place", edit("(load[index], index)", "index"), INVENTORY
    ),
    "a GPU that is named twice is two": Mutation(
        "testbed.devices.inventory:_visible", edit("return ()", "pass"), INVENTORY
    ),
    "a GPU's memory has no end": Mutation(
        "testbed.devices.inventory:place", edit("if free[index] >= demand.memory_bytes", "if True"), INVENTORY
    ),
    "of equal magnitudes a GPU chooses all": Mutation(
        "testbed.codec.selectors.on_device:largest", edit("<= k - above.sum()", "<= k"), CHOICE
    ),
    "a share of a GPU is one token": Mutation(
        "testbed.realtime.processor:Tokens.acquire",
        edit("taken < self.need", "taken < 1"),
        ("tests/realtime/test_processor.py",),
    ),
    "layers take their share of operations": Mutation(
        "testbed.engine.learner:step_shares", edit("if not layers:", "if True:"), ("tests/analysis/test_profile.py",)
    ),
    "parts of a batch are summed": Mutation(
        "testbed.training.trainer:Trainer._gradient", edit("alpha=share", "alpha=1.0"),
        ("tests/training/test_computing.py",),
    ),
}  # fmt: skip
