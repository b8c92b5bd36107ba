"""The contract of a model from outside; ``docs/axes/model.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import nn

from testbed.training.options.declarations import ModelDeclarations


class Model(ModelDeclarations, ABC):
    """Declares which samples it ``takes``, has a nested frozen dataclass ``Options``, and builds the module."""

    Options: ClassVar[type[Any]]

    @staticmethod
    @abstractmethod
    def build(options: Any, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a module from a batch of samples of ``input_shape`` to scores [batch, classes].

        Text has scores [batch, context, classes]. The children of an ``nn.Sequential`` are sent one by one; any other
        module is one block. It has no buffers (use group instead of batch normalisation); its parameters are
        initialised afterwards (``testbed.training.models.initialise``).
        """

    @classmethod
    def parameters_bound(cls, options: Any, shape: tuple[int, ...], classes: int) -> int:
        """Return the number of parameters, found by building the module without numbers; 0 where that fails.

        The run builds the module again, and tells why it cannot.
        """
        try:
            with torch.device("meta"):
                module = cls.build(options, shape, classes)
            return sum(parameter.numel() for parameter in module.parameters())
        except Exception:
            return 0
