"""The computation of one worker: gradients of its batches, and the values of its parameters."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import CapabilityError, ScenarioError
from testbed.training.batches import Batches
from testbed.training.datasets import Dataset, as_model_input, digest_of
from testbed.training.learner import Score, SegmentedStep, State, StepResult
from testbed.training.models import Segment, measure, segments
from testbed.training.shapes import ModelShape
from testbed.training.tables import EmbeddingTables

TEST_BATCH = 1000
CPU = torch.device("cpu")


def torch_device(kind: str, rank: int = 0) -> torch.device:
    """Return the device for the worker or server of that rank; ranks are distributed over the GPUs round robin.

    Raise ``CapabilityError`` for ``cuda`` if torch finds no GPU. Results on a GPU differ in bits from the processor's.
    """
    assert kind in ("cpu", "cuda"), kind
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        cuda = torch.version.cuda
        reason = f"for CUDA {cuda}, but finds no GPU: check its driver" if cuda else "without CUDA: install another"
        raise CapabilityError(
            f"device: cuda is not available here: torch {torch.__version__} was built {reason}, or write device: cpu"
        )
    return torch.device("cuda", rank % torch.cuda.device_count())


def mean_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits [..., classes] for labels [...]."""
    return functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


class TorchStep:
    """Forward and backward over one batch, one segment at a time; see ``SegmentedStep`` for the order.

    Each segment's autograd graph begins at a detached copy of its input. Its backward pass starts from the next
    segment's gradient with respect to that copy, which is the value that autograd passes on in a whole backward pass.
    So these are the same operations as the whole step, hence the same bits.
    """

    def __init__(self, segments: tuple[Segment, ...], inputs: Tensor, labels: Tensor) -> None:
        self._segments, self._labels = segments, labels
        self.samples = len(inputs)
        self._activation = inputs  # input of the next segment's forward pass
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._loss: Tensor | None = None
        self._incoming: Tensor | None = None  # gradient of the outputs of the next segment's backward pass

    @property
    def loss(self) -> float:
        """Mean loss over the batch."""
        assert self._loss is not None, "the loss is not known before the last segment's forward pass"
        return self._loss.item()

    def forward_segment(self, index: int) -> None:
        """Run segment ``index`` at its current values."""
        assert index == len(self._outputs), f"segment {index} comes after {len(self._outputs) - 1}"
        inputs = self._activation.detach()
        inputs.requires_grad_(index > 0)
        outputs = self._segments[index].module(inputs)
        self._inputs.append(inputs)
        self._outputs.append(outputs)
        self._activation = outputs
        if index == len(self._segments) - 1:
            self._end_of_forward(outputs)

    def _end_of_forward(self, outputs: Tensor) -> None:
        logits = outputs.detach().requires_grad_()
        loss = mean_loss(logits, self._labels)
        (self._incoming,) = torch.autograd.grad(loss, [logits])
        self._loss = loss.detach()

    def backward_segment(self, index: int) -> list[Tensor]:
        """Return flat float32 gradients of the segment's keys, on the host."""
        assert self._incoming is not None, "backward begins when all segments have run forward"
        assert index == len(self._outputs) - 1, f"segment {len(self._outputs) - 1} comes before {index}"
        inputs, outputs = self._inputs.pop(), self._outputs.pop()
        wanted: list[Tensor] = list(self._segments[index].parameters)
        if index > 0:
            wanted.append(inputs)
        gradients = list(torch.autograd.grad(outputs, wanted, self._incoming))
        if index > 0:
            self._incoming = gradients.pop()
        return [to_host(gradient) for gradient in gradients]


def to_host(gradient: Tensor) -> Tensor:
    """Return the gradient flat and in main memory, as messages need it."""
    return gradient.reshape(-1).cpu()


class Trainer:
    """A model and its data. Tensors are flat float32 on the host, one per parameter, in the model's order.

    The model computes on ``device``; gradients and values are copied between device and host when they are read or set.
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

    @property
    def widths(self) -> Mapping[int, int]:
        """Elements of a row of each key that is an embedding table."""
        return self._tables.widths

    @cached_property
    def _tables(self) -> EmbeddingTables:
        return EmbeddingTables(self._segments, as_model_input(self._dataset.train_inputs[:1].to(self._device)))

    def rows(self, step: int) -> dict[int, Tensor]:
        """Return the rows of each table that the batch of ``step`` needs."""
        inputs = self._dataset.train_inputs[self._batches.indices(step)]
        return self._tables.rows(as_model_input(inputs.to(self._device)))

    def gradient(self, step: int) -> StepResult:
        """Return loss and gradients of the batch of ``step`` at the current values."""
        inputs, labels = self._batch(step)
        loss = mean_loss(self._model(inputs), labels)
        gradients = torch.autograd.grad(loss, self._parameters)
        return StepResult(loss.item(), len(inputs), [to_host(gradient) for gradient in gradients])

    def begin(self, step: int) -> SegmentedStep:
        """Begin the same step segment by segment; its gradients have the same bits."""
        return TorchStep(self._segments, *self._batch(step))

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        indices, self.epoch = self._batches.indices(step), self._batches.epoch(step)
        inputs, labels = self._dataset.train_inputs[indices], self._dataset.train_labels[indices]
        return as_model_input(inputs.to(self._device)), labels.to(self._device)

    def values(self) -> list[Tensor]:
        """Return a copy of the current values."""
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
        """Return accuracy and loss on the test set at ``values``. It has a copy of the model, for concurrent use."""
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
        most = int(torch.bincount(self._dataset.test_labels.flatten()).max())
        return Score(correct / count, loss, most / count)

    def state(self) -> State:
        """Return a checkpoint: the values, and a digest of the data. Batches depend on the step number only."""
        values: State = {f"value/{key}": value for key, value in enumerate(self.values())}
        return {**values, "data": self._data_digest()}

    def load_state(self, state: Mapping[str, Tensor | int | float]) -> None:
        """Restore ``state``. Raise ``ScenarioError`` if the checkpoint is of other data or another model."""
        values = [value for key in range(len(self.sizes)) if isinstance(value := state.get(f"value/{key}"), Tensor)]
        if tuple(value.numel() for value in values) != self.sizes or len(state) != len(values) + 1:
            raise ScenarioError("the checkpoint belongs to another model; remove it, or resume its own scenario")
        if state["data"] != self._data_digest():
            raise ScenarioError("the checkpoint belongs to other training data; remove it, or restore the data")
        self.load(values)

    def _data_digest(self) -> int:
        share, dataset = self._batches.share, self._dataset
        digest = digest_of(dataset.train_inputs[share[:TEST_BATCH]], dataset.train_labels[share])
        return int(digest[:15], 16)


def _set(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value.view_as(parameter))
