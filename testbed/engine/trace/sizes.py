"""What messages of a trace carry: numbers where nodes are processes, else sizes alone."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.placing import SIZES_ONLY
from testbed.plan.model import Plan

_ELEMENT = torch.float32
_LARGEST_KEPT_BYTES = 256 << 20  # of each size there is one tensor, and no one changes what is sent


class Sizes:
    """Makes tensors of given sizes."""

    def __init__(self, plan: Plan) -> None:
        self._device = torch.device("cpu") if plan.facilities.has_processes else SIZES_ONLY
        self._kept: dict[int, Tensor] = {}

    def of(self, size_bytes: int) -> Tensor:
        """Return a tensor of so many bytes: of float32, or of bytes where they are no multiple of four."""
        if size_bytes not in self._kept:
            whole = size_bytes % _ELEMENT.itemsize == 0
            elements = size_bytes // _ELEMENT.itemsize if whole else size_bytes
            made = torch.zeros(elements, dtype=_ELEMENT if whole else torch.uint8, device=self._device)
            if size_bytes > _LARGEST_KEPT_BYTES:
                return made
            self._kept[size_bytes] = made
        return self._kept[size_bytes]
