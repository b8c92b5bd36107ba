"""A model in 256 numbers, so that the consensus distance can be read from event logs without moving any model.

Elements get random signs and are added up by position modulo 256 (AMS sketch: Alon, Matias and Szegedy, 1996; Charikar
et al., 2002). It is linear, so the sketch of a mean is the mean of sketches, and the squared norm of a difference is
kept on average, with a relative deviation of about √(2/256) = 9 %.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from testbed.training.seeds import torch_stream

WIDTH = 256


class Sketch:
    """The same signs for all workers of a run: they come from the run's seed."""

    def __init__(self, elements: int, seed: int) -> None:
        bits = torch.randint(0, 2, (elements,), dtype=torch.int8, generator=torch_stream(seed, "sketch"))
        self._signs = bits * 2 - 1

    def __call__(self, flat: Tensor) -> list[float]:
        """``WIDTH`` numbers of a flat model; none of a model without numbers."""
        if flat.is_meta:
            return []
        padded = functional.pad(flat * self._signs, (0, -flat.numel() % WIDTH))
        return [float(f"{value:.6g}") for value in padded.view(-1, WIDTH).sum(dim=0).tolist()]
