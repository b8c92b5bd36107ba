"""A data set: tensors of samples and labels, for training and for testing."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from testbed.training.options.declarations import DataDeclarations

_BYTE = 255


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Samples and labels; labels int64.

    Images: inputs [count, channels, height, width], float32 in [0, 1] or uint8 (a quarter of the memory), labels
    [count]. Text: inputs int64 [count, context], labels [count, context]: the character after each one.
    """

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (channels, height, width), or (context,)."""
        return tuple(self.train_inputs.shape[1:])

    def first(self, train_samples: int, test_samples: int) -> Dataset:
        """Return the first samples only; 0 means all."""
        train, test = train_samples or None, test_samples or None
        return Dataset(
            self.train_inputs[:train], self.train_labels[:train], self.test_inputs[:test], self.test_labels[:test],
            self.classes,
        )  # fmt: skip


class DataSource(DataDeclarations, ABC):
    """A data set from outside: declares what it ``gives``, has a nested frozen dataclass ``Options``, and loads."""

    Options: ClassVar[type[Any]]

    @staticmethod
    @abstractmethod
    def load(options: Any, seed: int) -> Dataset:
        """Return the samples, from local files or drawn from ``seed``. Called once per process.

        Raise ``ScenarioError`` when files are missing or malformed.
        """


def as_model_input(inputs: Tensor) -> Tensor:
    """Convert uint8 to float32 in [0, 1]; other types are model inputs already."""
    return inputs.float().div_(_BYTE) if inputs.dtype == torch.uint8 else inputs


def digest_of(inputs: Tensor, labels: Tensor) -> str:
    """Return the SHA-256 of samples and labels, their shapes and types."""
    digest = hashlib.sha256()
    for tensor in (inputs, labels):
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
