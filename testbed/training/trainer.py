"""The computation of one worker: gradients of its batches, and the values of its parameters."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed import buffers
from testbed.devices.accelerator import CPU, EVALUATION, accelerator_of
from testbed.errors import ScenarioError
from testbed.key_shape import KeyShape, shapes_of
from testbed.training.batches import Batches
from testbed.training.datasets import Dataset, as_model_input, digest_of
from testbed.training.learner import Score, SegmentedStep, State, StepResult
from testbed.training.models import Segment, measure, segments, trained
from testbed.training.shapes import ModelShape
from testbed.training.tables import EmbeddingTables

TEST_BATCH = 1000
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # if unset, cuBLAS results may differ between runs


@dataclass(frozen=True, slots=True)
class Computing:
    """How gradients are computed.

    precision   ``float32``, ``tf32``, or ``bf16`` for automatic mixed precision; parameters and gradients stay float32
    accumulate  number of parts into which a batch is cut; their gradients are averaged
    compiled    whether the model is compiled with torch.compile
    on_host     whether gradients and values are returned in main memory instead of on the computing device
    """

    precision: str = "float32"
    accumulate: int = 1
    compiled: bool = False
    on_host: bool = False

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()


def configure(precision: str, deterministic: bool, device: torch.device) -> None:
    """Set torch's global options for this process, without initialising a GPU."""
    if torch.are_deterministic_algorithms_enabled() != deterministic:
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if device.type == "cpu":
        return
    if deterministic:
        os.environ.setdefault(_CUBLAS, ":4096:8")
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def mean_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy, in float32, of logits [..., classes] for labels [...]."""
    return functional.cross_entropy(outputs.flatten(0, -2).float(), labels.flatten())


class TorchStep:
    """Forward and backward over one batch, one segment at a time; see ``SegmentedStep`` for the order.

    Each segment's autograd graph begins at its detached input. Its backward pass starts from the gradient with respect
    to the next segment's input, the same value that autograd passes on in a whole backward pass. So the operations are
    the same as in a whole step, and the results are equal to the last bit.
    """

    def __init__(
        self,
        segments: tuple[Segment, ...],
        inputs: Tensor,
        labels: Tensor,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        on_host: bool = False,
    ) -> None:
        self._segments = segments
        self._labels = labels
        self._autocast = autocast
        self._on_host = on_host
        self.samples = len(inputs)
        self._activation = inputs  # input of the next segment's forward pass
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._loss: Tensor | None = None
        self._incoming: Tensor | None = None  # gradient of the outputs of the segment whose backward pass is next

    @property
    def loss(self) -> float:
        assert self._loss is not None, "the loss is not known before the last segment's forward pass"
        return self._loss.item()

    def forward_segment(self, index: int) -> None:
        """Run segment ``index`` at its current values."""
        assert index == len(self._outputs), f"segment {index} comes after {len(self._outputs) - 1}"
        inputs = self._activation.detach()
        inputs.requires_grad_(index > 0)
        with self._autocast():
            outputs = self._segments[index](inputs)
        self._inputs.append(inputs)
        self._outputs.append(outputs)
        self._activation = outputs
        if index == len(self._segments) - 1:
            logits = outputs.detach().requires_grad_()
            loss = mean_loss(logits, self._labels)
            (self._incoming,) = torch.autograd.grad(loss, [logits])
            self._loss = loss.detach()

    def backward_segment(self, index: int) -> list[Tensor]:
        """Return flat float32 gradients of the segment's keys."""
        assert self._incoming is not None, "backward begins when all segments have run forward"
        assert index == len(self._outputs) - 1, f"segment {len(self._outputs) - 1} comes before {index}"
        inputs = self._inputs.pop()
        outputs = self._outputs.pop()
        segment = self._segments[index]
        wanted: list[Tensor] = list(segment.parameters)
        if index > 0:
            wanted.append(inputs)
        gradients: list[Tensor | None] = list(torch.autograd.grad(outputs, wanted, self._incoming, allow_unused=True))
        if index > 0:
            self._incoming = gradients.pop()
            if self._incoming is None:
                raise ScenarioError(
                    f"training.model: the block '{segment.name}' does not use the output of the one before"
                )
        return returned(complete(gradients, segment.module), self._on_host)


def complete(gradients: Sequence[Tensor | None], module: nn.Module) -> list[Tensor]:
    """Return the gradients of trained parameters of ``module``. Raise ``ScenarioError`` if one is missing or sparse."""
    found = [gradient for gradient in gradients if gradient is not None and not gradient.is_sparse]
    if len(found) < len(gradients):
        for (name, _), gradient in zip(trained(module).items(), gradients, strict=True):
            if gradient is None:
                raise ScenarioError(
                    f"training.model: the forward pass does not use the parameter '{name}'; use it, or do not create it"
                )
            if gradient.is_sparse:
                raise ScenarioError(
                    f"training.model: the gradient of '{name}' is sparse; write sparse=False "
                    "('pull: rows' sends the rows of a table that are not zero)"
                )
    return found


def returned(gradients: Sequence[Tensor], on_host: bool) -> list[Tensor]:
    """Return the gradients flat, on their device or, with ``on_host``, in main memory by one copy."""
    flat = [gradient.reshape(-1) for gradient in gradients]
    accelerator = accelerator_of(flat[0].device) if on_host and flat else None
    return list(accelerator.to_host(tuple(flat))) if accelerator else flat


class Trainer:
    """A model on ``device``, and its data. Tensors are flat float32, one per trained parameter, in the model's order.

    Gradients and values are returned on the device, or in main memory if ``computing.on_host``. Values to load may be
    on either.
    """

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset,
        batches: Batches,
        device: torch.device = CPU,
        computing: Computing = Computing(),
    ) -> None:
        assert not list(model.buffers()), "buffers would differ between workers; see testbed/training/models"
        self.model = model.to(device)
        self._dataset = dataset
        self._batches = batches
        self.device = device
        self._computing = computing
        self._accelerator = accelerator_of(device)
        self._scored_model: nn.Module | None = None
        self.epoch = 0
        self._parameters = list(trained(self.model).values())
        self._segments = segments(self.model)
        if computing.compiled:
            for module in (self.model, *(segment.module for segment in self._segments)):
                module.compile()
        self.sizes = tuple(parameter.numel() for parameter in self._parameters)

    @property
    def shape(self) -> ModelShape:
        """The segments of the model, with their sizes and their work."""
        sample = as_model_input(self._dataset.train_inputs[:1]).to("meta")
        return measure(type(self.model).__name__, copy.deepcopy(self.model).to("meta"), sample)

    @cached_property
    def shapes(self) -> tuple[KeyShape, ...]:
        return shapes_of([tuple(parameter.shape) for parameter in self._parameters], frozenset(self.widths))

    @property
    def widths(self) -> Mapping[int, int]:
        return self._tables.widths

    @cached_property
    def _tables(self) -> EmbeddingTables:
        return EmbeddingTables(self._segments, as_model_input(self._dataset.train_inputs[:1].to(self.device)))

    def rows(self, step: int) -> dict[int, Tensor]:
        inputs = self._dataset.train_inputs[self._batches.indices(step)]
        return self._tables.rows(as_model_input(inputs.to(self.device)))

    def gradient(self, step: int) -> StepResult:
        """Return loss and gradients of the batch of ``step`` at the current values."""
        inputs, labels = self._batch(step)
        loss, gradients = self._gradient(inputs, labels)
        return StepResult(loss.item(), len(inputs), returned(gradients, self._computing.on_host))

    def _gradient(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        if self._computing.accumulate == 1:
            return self._of_part(inputs, labels)
        parts = zip(*(each.tensor_split(self._computing.accumulate) for each in (inputs, labels)), strict=True)
        total = torch.zeros((), device=inputs.device)
        gradients = [torch.zeros_like(each) for each in self._parameters]
        for some_inputs, some_labels in parts:
            loss, more = self._of_part(some_inputs, some_labels)
            share = len(some_inputs) / len(inputs)
            total += loss * share
            torch._foreach_add_(gradients, list(more), alpha=share)
        return total, gradients

    def _of_part(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        with self._computing.autocast(self.device):
            outputs = self.model(inputs)
        loss = mean_loss(outputs, labels)
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        return loss.detach(), complete(gradients, self.model)

    def begin(self, step: int) -> SegmentedStep:
        """Begin step ``step`` segment by segment; its gradients have the same bits as those of ``gradient``."""
        return self._segmented(*self._batch(step))

    def _segmented(self, inputs: Tensor, labels: Tensor) -> TorchStep:
        autocast = partial(self._computing.autocast, self.device)
        return TorchStep(self._segments, inputs, labels, autocast, self._computing.on_host)

    def warm_up(self, *, by_segments: bool) -> None:
        """Compute a step and a forward pass, and drop the results, so that kernels are loaded, chosen and compiled."""
        inputs, labels = self._samples(self._batches.indices(0))
        if by_segments:
            step = self._segmented(inputs, labels)
            indices = range(len(self._segments))
            for index in indices:
                step.forward_segment(index)
            for index in reversed(indices):
                step.backward_segment(index)
        else:
            self._gradient(inputs, labels)[0].item()
        with torch.no_grad():
            self.model(inputs)

    def epoch_of(self, step: int) -> int:
        """Return the number of the pass over this worker's samples in which a step lies."""
        return self._batches.epoch(step)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        indices = self._batches.indices(step)
        self.epoch = self._batches.epoch(step)
        return self._samples(indices)

    def _samples(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self._dataset.train_inputs[indices]
        labels = self._dataset.train_labels[indices]
        return as_model_input(inputs.to(self.device)), labels.to(self.device)

    def values(self) -> list[Tensor]:
        """Return a copy of the current values, after the GPU has finished copying."""
        if self._accelerator is None:
            return self._copies()
        copies, _ = self._accelerator.timed(self._copies)
        return list(self._accelerator.to_host(tuple(copies))) if self._computing.on_host else copies

    def _copies(self) -> list[Tensor]:
        return [buffers.clone(parameter.detach().reshape(-1)) for parameter in self._parameters]

    @torch.no_grad()
    def load(self, values: list[Tensor]) -> None:
        _set(self._parameters, values)

    @torch.no_grad()
    def load_segment(self, index: int, values: list[Tensor]) -> None:
        _set(self._segments[index].parameters, values)

    @torch.no_grad()
    def evaluate(self, values: list[Tensor]) -> Score:
        """Score ``values`` on the test set. This uses a copy of the model, so that training can go on."""
        correct = 0
        loss = 0.0
        count = self._dataset.test_labels.numel()
        inputs = torch.split(self._dataset.test_inputs, TEST_BATCH)
        labels = torch.split(self._dataset.test_labels, TEST_BATCH)
        with self._accelerator.on(EVALUATION) if self._accelerator else nullcontext():
            if self._scored_model is None:
                self._scored_model = copy.deepcopy(self.model)
            _set(list(trained(self._scored_model).values()), values)
            for some_inputs, some_labels in zip(inputs, labels, strict=True):
                expected = some_labels.to(self.device)
                logits = self._scored_model(as_model_input(some_inputs.to(self.device)))
                correct += int((logits.argmax(dim=-1) == expected).sum())
                loss += mean_loss(logits, expected).item() * expected.numel() / count
        most = int(torch.bincount(self._dataset.test_labels.flatten()).max())
        return Score(correct / count, loss, most / count)

    def state(self) -> State:
        """Return the state for a checkpoint: the values, and a digest of the data.

        Batches need no state, as they depend on the step number only.
        """
        values: State = {f"value/{key}": value for key, value in enumerate(self.values())}
        return {**values, "data": self._data_digest()}

    def load_state(self, state: Mapping[str, Tensor | int | float]) -> None:
        """Restore ``state``. Raise ``ScenarioError`` if the checkpoint belongs to other data or another model."""
        values = [value for key in range(len(self.sizes)) if isinstance(value := state.get(f"value/{key}"), Tensor)]
        if tuple(value.numel() for value in values) != self.sizes or len(state) != len(values) + 1:
            raise ScenarioError("the checkpoint belongs to another model; remove it, or resume its own scenario")
        if state["data"] != self._data_digest():
            raise ScenarioError("the checkpoint belongs to other training data; remove it, or restore the data")
        self.load(values)

    def _data_digest(self) -> int:
        share = self._batches.share
        dataset = self._dataset
        digest = digest_of(dataset.train_inputs[share[:TEST_BATCH]], dataset.train_labels[share])
        return int(digest[:15], 16)


def _set(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value.view_as(parameter))
