"""The contract of a user's own split; ``docs/axes/split.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from testbed.training.options.declarations import SplitDeclarations


class Split(SplitDeclarations, ABC):
    """Distributes the training samples over the workers. It has a nested frozen dataclass ``Options``."""

    Options: ClassVar[type[Any]]

    @staticmethod
    @abstractmethod
    def cut(options: Any, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
        """Return the indices (int64) of each worker's samples: no sample twice, no worker without one.

        ``labels`` is [samples], or [samples, context] for text. Draw from ``seed`` alone.
        """
