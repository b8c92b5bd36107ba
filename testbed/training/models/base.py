"""The contract of a user's own model; ``docs/axes/model.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import nn

from testbed.training.options.declarations import ModelDeclarations


class Model(ModelDeclarations, ABC):
    """Declares the kind of samples (``takes``) and a nested frozen dataclass ``Options``, and builds the module."""

    Options: ClassVar[type[Any]]

    @staticmethod
    @abstractmethod
    def build(options: Any, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a module that maps a batch of samples of ``input_shape`` to scores [batch, classes].

        For text, scores are [batch, context, classes]. Each child of an ``nn.Sequential`` is a block; any other module
        is a single block. The module must have no buffers (use group instead of batch normalisation). Its parameters
        are initialised afterwards (``testbed.training.models.initialise``).
        """

    @classmethod
    def parameters_bound(cls, options: Any, shape: tuple[int, ...], classes: int) -> int:
        """Build the module on the meta device, and return its number of parameters; 0 if building fails.

        In that case, the run reports the error when it builds the module again.
        """
        try:
            with torch.device("meta"):
                module = cls.build(options, shape, classes)
            return sum(parameter.numel() for parameter in module.parameters())
        except Exception:
            return 0
