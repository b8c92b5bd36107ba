"""One worker's mathematics: gradients of its batches, and the values of its parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.training.batches import Batches
from testbed.training.datasets import Dataset, as_model_input, digest_of
from testbed.training.learner import (
    Learner,
    Score,
    SegmentedLearner,
    SegmentedStep,
    State,
    StepResult,
    values_sha256,
)
from testbed.training.models.measuring import measure
from testbed.training.models.segments import segments
from testbed.training.segmented import TorchStep, mean_loss, to_host
from testbed.training.shape_trainer import ShapeTrainer
from testbed.training.shapes import ModelShape

TEST_BATCH = 1000
CPU = torch.device("cpu")


class Trainer:
    """A model and its data. Tensors are flat float32 on the host, one per parameter, in the model's order.

    The model computes on ``device``; gradients and values cross over when they are asked for, and when they are set.
    """

    def __init__(self, model: nn.Module, dataset: Dataset, batches: Batches, device: torch.device = CPU) -> None:
        assert not list(model.buffers()), "buffers would differ between workers; see testbed/training/models"
        self._model, self._dataset, self._batches, self._device = model.to(device), dataset, batches, device
        self._scored_model: nn.Module | None = None
        self.epoch = 0
        self._parameters = list(self._model.parameters())
        self._segments = segments(self._model)
        self.sizes = tuple(parameter.numel() for parameter in self._parameters)

    @property
    def shape(self) -> ModelShape:
        """Segments with their sizes and their work."""
        sample = as_model_input(self._dataset.train_inputs[:1]).to("meta")
        return measure(type(self._model).__name__, copy.deepcopy(self._model).to("meta"), sample)

    def gradient(self, step: int) -> StepResult:
        """Forward and backward over the batch of ``step`` at the current values."""
        inputs, labels = self._batch(step)
        loss = mean_loss(self._model(inputs), labels)
        gradients = torch.autograd.grad(loss, self._parameters)
        return StepResult(loss.item(), len(inputs), [to_host(gradient) for gradient in gradients])

    def begin(self, step: int) -> SegmentedStep:
        """The same, to be done segment by segment; the gradients have the same bits."""
        return TorchStep(self._segments, *self._batch(step))

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        indices, self.epoch = self._batches.indices(step), self._batches.epoch(step)
        inputs, labels = self._dataset.train_inputs[indices], self._dataset.train_labels[indices]
        return as_model_input(inputs.to(self._device)), labels.to(self._device)

    def values(self) -> list[Tensor]:
        """A copy of the current values."""
        return [parameter.detach().reshape(-1).to(CPU, copy=True) for parameter in self._parameters]

    @torch.no_grad()
    def load(self, values: list[Tensor]) -> None:
        """Set the current values."""
        _set(self._parameters, values)

    @torch.no_grad()
    def load_segment(self, index: int, values: list[Tensor]) -> None:
        """Set the current values of one segment's keys."""
        _set(list(self._segments[index].parameters), values)

    @torch.no_grad()
    def evaluate(self, values: list[Tensor]) -> Score:
        """Accuracy and loss on the test set at ``values``. May run beside ``gradient``: it has a model of its own."""
        if self._scored_model is None:
            self._scored_model = copy.deepcopy(self._model)
        _set(list(self._scored_model.parameters()), values)
        correct, loss, count = 0, 0.0, self._dataset.test_labels.numel()
        inputs = torch.split(self._dataset.test_inputs, TEST_BATCH)
        labels = torch.split(self._dataset.test_labels, TEST_BATCH)
        for some_inputs, some_labels in zip(inputs, labels, strict=True):
            expected = some_labels.to(self._device)
            logits = self._scored_model(as_model_input(some_inputs.to(self._device)))
            correct += int((logits.argmax(dim=-1) == expected).sum())
            loss += mean_loss(logits, expected).item() * expected.numel() / count
        return Score(correct / count, loss)

    def state(self) -> State:
        """All that a checkpoint needs: the values, and a mark of the data. Batches depend on the step's number only."""
        values: State = {f"value/{key}": value for key, value in enumerate(self.values())}
        return {**values, "data": self._data_mark()}

    def load_state(self, state: Mapping[str, Tensor | int | float]) -> None:
        """Inverse of ``state``. ``ScenarioError`` when the checkpoint belongs to other data or another model."""
        values = [value for key in range(len(self.sizes)) if isinstance(value := state.get(f"value/{key}"), Tensor)]
        if tuple(value.numel() for value in values) != self.sizes or len(state) != len(values) + 1:
            raise ScenarioError("the checkpoint belongs to another model; remove it, or resume its own scenario")
        if state["data"] != self._data_mark():
            raise ScenarioError("the checkpoint belongs to other training data; remove it, or restore the data")
        self.load(values)

    def _data_mark(self) -> int:
        share, dataset = self._batches.share, self._dataset
        digest = digest_of(dataset.train_inputs[share[:TEST_BATCH]], dataset.train_labels[share])
        return int(digest[:15], 16)


def _set(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value.view_as(parameter))


__all__ = [
    "Learner",
    "Score",
    "SegmentedLearner",
    "SegmentedStep",
    "ShapeTrainer",
    "StepResult",
    "Trainer",
    "values_sha256",
]
