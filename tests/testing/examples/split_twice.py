"""Broken on purpose: neighbouring workers share a sample."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.training.splits.base import Split


class Twice(Split):
    """Contiguous shares that overlap by one."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def cut(options: Options, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
        size = len(labels) // workers
        return [torch.arange(rank * size, min((rank + 1) * size + 1, len(labels))) for rank in range(workers)]
