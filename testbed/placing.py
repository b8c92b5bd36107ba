"""The device that holds the tensors of a node."""

from __future__ import annotations

import torch

from testbed.devices.accelerator import torch_device
from testbed.plan.model import NodePlan, Plan

SIZES_ONLY = torch.device("meta")


def place_of(plan: Plan, node: NodePlan) -> torch.device:
    """Return the device of ``node``, without initialising it."""
    if plan.training.compute == "modelled":
        return SIZES_ONLY
    return torch_device(node.device.kind, max(0, node.device.index))
