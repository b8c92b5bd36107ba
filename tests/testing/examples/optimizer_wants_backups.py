"""Broken on purpose: it declares that it needs backups, and its options are not those by which they are used."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions


class WantsBackups(KeyStep):
    """Gradient descent."""

    needs_backups = True

    @dataclass(frozen=True, slots=True)
    class Options(OptimizerOptions):
        """Those of all optimizers."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return torch.optim.SGD([value], lr=0.0)
