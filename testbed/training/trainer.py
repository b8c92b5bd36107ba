"""One worker's mathematics: gradients of its batches, and the values of its parameters.

``Trainer`` does the real thing. ``ShapeTrainer`` has the same keys with no numbers in them (torch's meta device), for
predictions at a scale where the mathematics would not fit.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.training.data import Batches, Dataset


@dataclass(frozen=True, slots=True)
class StepResult:
    """Mean loss over ``samples``, and the gradient of that mean: one flat float32 tensor per key, fresh each time."""

    loss: float
    samples: int
    gradients: list[Tensor]


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy (share of test samples) and mean loss on the test set."""

    accuracy: float
    loss: float


class Learner(Protocol):
    """What the worker role needs of a training job."""

    sizes: tuple[int, ...]  # elements of each key

    def gradient(self, step: int) -> StepResult: ...
    def values(self) -> list[Tensor]: ...
    def load(self, values: list[Tensor]) -> None: ...
    def evaluate(self, values: list[Tensor]) -> Score | None: ...


class Trainer:
    """A model and its data. Tensors are flat float32, one per parameter, in the model's order."""

    def __init__(self, model: nn.Module, dataset: Dataset, batches: Batches) -> None:
        self._model, self._dataset, self._batches = model, dataset, batches
        self._scored_model = copy.deepcopy(model)
        self._parameters = list(model.parameters())
        self.sizes = tuple(parameter.numel() for parameter in self._parameters)

    def gradient(self, step: int) -> StepResult:
        """Forward and backward over the batch of ``step`` at the current values."""
        indices = self._batches.indices(step)
        images, labels = self._dataset.train_images[indices], self._dataset.train_labels[indices]
        loss = functional.cross_entropy(self._model(images), labels)
        gradients = torch.autograd.grad(loss, self._parameters)
        return StepResult(loss.item(), len(indices), [gradient.reshape(-1) for gradient in gradients])

    def values(self) -> list[Tensor]:
        """A copy of the current values."""
        return [parameter.detach().reshape(-1).clone() for parameter in self._parameters]

    @torch.no_grad()
    def load(self, values: list[Tensor]) -> None:
        """Set the current values."""
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value.view_as(parameter))

    @torch.no_grad()
    def evaluate(self, values: list[Tensor]) -> Score:
        """Accuracy and loss on the test set at ``values``. May run beside ``gradient``: it has a model of its own."""
        for parameter, value in zip(self._scored_model.parameters(), values, strict=True):
            parameter.copy_(value.view_as(parameter))
        logits = self._scored_model(self._dataset.test_images)
        labels = self._dataset.test_labels
        accuracy = (logits.argmax(dim=1) == labels).double().mean().item()
        return Score(accuracy, functional.cross_entropy(logits, labels).item())


class ShapeTrainer:
    """The same keys, no numbers. Nothing is computed, so there is no accuracy."""

    def __init__(self, sizes: tuple[int, ...], batch_size: int) -> None:
        self.sizes = sizes
        self._batch_size = batch_size
        self._values = [torch.empty(size, device="meta") for size in sizes]

    def gradient(self, step: int) -> StepResult:
        return StepResult(float("nan"), self._batch_size, self._values)

    def values(self) -> list[Tensor]:
        return self._values

    def load(self, values: list[Tensor]) -> None:
        pass

    def evaluate(self, values: list[Tensor]) -> None:
        return None


def values_sha256(values: Iterable[Tensor]) -> str | None:
    """Hash of values in key order, as float32 bytes; None for shapes without numbers."""
    digest = hashlib.sha256()
    for value in values:
        if value.is_meta:
            return None
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
