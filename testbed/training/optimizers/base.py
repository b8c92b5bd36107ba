"""The contract of a user's own optimizer; ``docs/axes/optimizer.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from testbed.key_shape import KeyShape
from testbed.training.options.declarations import OptimizerDeclarations
from testbed.training.options.optimizers import OptimizerOptions


class KeyStep(OptimizerDeclarations, ABC):
    """One torch optimizer per key. ``Options`` derives from ``OptimizerOptions`` (schedule, clipping)."""

    Options: ClassVar[type[OptimizerOptions]]

    @staticmethod
    @abstractmethod
    def make(options: Any, value: Tensor, *shape: KeyShape) -> torch.optim.Optimizer:
        """Return an optimizer over the one flat float32 tensor ``value``, in one parameter group.

        ``shape``: the shape of the tensor; given only if the class is ``by_shape``.

        The schedule sets the group's ``lr`` before every step. Checkpoints include the optimizer's state.
        """
