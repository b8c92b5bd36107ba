"""The computation of one stage of a pipeline: passes of micro-batches through some segments of the model.

The operations are those of a step of the whole model whose batch is cut into the same number of parts
(``training.accumulate``), and gradients are added up in the same order. So the results are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.training.batches import Batches
from testbed.training.datasets import Dataset
from testbed.training.learner import SegmentedLearner, StepResult
from testbed.training.models import Segment
from testbed.training.shape_trainer import ShapeTrainer
from testbed.training.shapes import ModelShape
from testbed.training.trainer import Computing, Trainer, complete, mean_loss, returned

ACTIVATION_TYPES = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""Types of the activations between segments, by ``training.precision``."""


@dataclass(frozen=True, slots=True)
class StageCut:
    """The part of a model that a stage computes.

    chunks  the parts of the model that the stage holds, each as a range of segment numbers
    first   whether the first chunk reads samples
    last    whether the last chunk computes the loss
    recomputes  whether the stage keeps only the inputs of its chunks, and repeats forward passes before backward passes
    whole   whether the worker also keeps the whole model, because it evaluates
    """

    chunks: tuple[range, ...]
    micro_batches: int
    first: bool
    last: bool
    recomputes: bool = False
    whole: bool = False

    def reads_samples(self, chunk: int) -> bool:
        return self.first and chunk == 0

    def makes_loss(self, chunk: int) -> bool:
        return self.last and chunk == len(self.chunks) - 1


class StageLearner(SegmentedLearner, Protocol):
    """A learner that has the keys of one stage, and computes a step pass by pass.

        learner.start(step)
        activation = learner.forward(0, 0, None)
        learner.backward(0, 0, gradient)
        result = learner.result()

    Before the first and after the last part of the model, activations and their gradients are ``None``.
    """

    def start(self, step: int) -> None:
        """Begin step number ``step`` with its batch."""

    def forward(self, micro_batch: int, chunk: int, activation: Tensor | None) -> Tensor | None:
        """Return the activation for the next part of the model."""

    def backward(self, micro_batch: int, chunk: int, gradient: Tensor | None, *, weights: bool) -> Tensor | None:
        """Return the gradient of the activation that ``forward`` was given.

        weights  whether to compute the gradients of the parameters, too
        """

    def weights(self, micro_batch: int, chunk: int) -> None:
        """Compute the gradients of the parameters, if ``backward`` was called without ``weights``."""

    def result(self) -> StepResult:
        """Return the gradients of all keys of the stage and, at the last stage, the loss (elsewhere NaN)."""


class _Held(NamedTuple):
    """Tensors that a pass keeps for later passes: its input, its output, and the gradient of the output."""

    inputs: Tensor
    outputs: Tensor
    incoming: Tensor | None


class StageTrainer(Trainer):
    """One stage of a model and its data, on a device."""

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset,
        batches: Batches,
        device: torch.device,
        computing: Computing,
        cut: StageCut,
        *,
        warms_up: bool = False,
    ) -> None:
        """``warms_up``: compute a step of the whole model as a warm-up, before dropping other stages' segments."""
        super().__init__(model, dataset, batches, device, computing)
        if warms_up:
            self.warm_up(by_segments=True)
        self._cut = cut
        self._chunks: list[list[Segment]] = [[self._segments[number] for number in chunk] for chunk in cut.chunks]
        if not cut.whole:
            self.model = nn.ModuleList(segment.module for chunk in self._chunks for segment in chunk)
            self._segments = ()
        self._of_chunk = [[each for segment in chunk for each in segment.parameters] for chunk in self._chunks]
        self._parameters = [each for chunk in self._of_chunk for each in chunk]
        self.sizes = tuple(parameter.numel() for parameter in self._parameters)
        self._samples_of: list[tuple[Tensor, Tensor]] = []
        self._count = 0
        self._held: dict[tuple[int, int], _Held] = {}
        self._gradients: list[list[Tensor]] = []  # by chunk: the sum over the micro-batches so far
        self._loss: Tensor | None = None

    def start(self, step: int) -> None:
        assert not self._held, "the step before is not complete"
        inputs, labels = self._batch(step)
        parts = self._cut.micro_batches
        self._samples_of = list(zip(inputs.tensor_split(parts), labels.tensor_split(parts), strict=True))
        self._count = len(inputs)
        self._gradients = [[] for _ in self._chunks]
        self._loss = None

    def forward(self, micro_batch: int, chunk: int, activation: Tensor | None) -> Tensor | None:
        samples, labels = self._samples_of[micro_batch]
        reads = self._cut.reads_samples(chunk)
        given = samples if reads else activation
        assert given is not None, "only the first part of the model reads samples"
        inputs = given.detach().to(self.device)
        inputs.requires_grad_(not reads)
        with torch.set_grad_enabled(not self._cut.recomputes):
            outputs = self._through(chunk, inputs)
        incoming = None
        if self._cut.makes_loss(chunk):
            logits = outputs.detach().requires_grad_()
            loss = mean_loss(logits, labels)
            (incoming,) = torch.autograd.grad(loss, [logits])
            self._count_loss(loss.detach(), self._share(micro_batch))
        kept = outputs[:0] if self._cut.recomputes else outputs
        self._held[micro_batch, chunk] = _Held(inputs, kept, incoming)
        return None if incoming is not None else outputs.detach()

    def _through(self, chunk: int, inputs: Tensor) -> Tensor:
        outputs = inputs
        with self._computing.autocast(self.device):
            for segment in self._chunks[chunk]:
                outputs = segment(outputs)
        return outputs

    def _share(self, micro_batch: int) -> float:
        return len(self._samples_of[micro_batch][0]) / self._count

    def _count_loss(self, loss: Tensor, share: float) -> None:
        if self._loss is None:
            self._loss = torch.zeros((), device=loss.device)
        self._loss += loss * share

    def backward(self, micro_batch: int, chunk: int, gradient: Tensor | None, *, weights: bool) -> Tensor | None:
        held = self._held.pop((micro_batch, chunk))
        if self._cut.recomputes:
            held = held._replace(outputs=self._through(chunk, held.inputs))
        incoming = held.incoming if gradient is None else gradient.to(self.device, held.outputs.dtype)
        assert incoming is not None, "only the last part of the model makes the loss"
        wanted: list[Tensor] = list(self._of_chunk[chunk]) if weights else []
        reads = self._cut.reads_samples(chunk)
        if not reads:
            wanted.append(held.inputs)
        found: list[Tensor | None] = []
        if wanted:
            kept = not weights  # keep the graph: ``weights`` needs it for the gradients of the parameters
            found += torch.autograd.grad(held.outputs, wanted, incoming, allow_unused=True, retain_graph=kept)
        outgoing = None if reads else found.pop()
        if not reads and outgoing is None:
            name = self._chunks[chunk][0].name
            raise ScenarioError(f"training.model: the block '{name}' does not use the output of the one before")
        if weights:
            self._add(micro_batch, chunk, found)
        else:
            self._held[micro_batch, chunk] = held._replace(incoming=incoming)
        return outgoing

    def weights(self, micro_batch: int, chunk: int) -> None:
        held = self._held.pop((micro_batch, chunk))
        assert held.incoming is not None, "the activations' gradients come first"
        found = torch.autograd.grad(held.outputs, self._of_chunk[chunk], held.incoming, allow_unused=True)
        self._add(micro_batch, chunk, found)

    def _add(self, micro_batch: int, chunk: int, gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of a micro-batch, weighted with its share of the batch, to the sum so far."""
        more = complete(gradients, nn.ModuleList(segment.module for segment in self._chunks[chunk]))
        if self._cut.micro_batches == 1:
            self._gradients[chunk] = more
            return
        if not self._gradients[chunk]:
            self._gradients[chunk] = [torch.zeros_like(each) for each in self._of_chunk[chunk]]
        torch._foreach_add_(self._gradients[chunk], more, alpha=self._share(micro_batch))

    def result(self) -> StepResult:
        gradients = returned([each for chunk in self._gradients for each in chunk], self._computing.on_host)
        if self._loss is None:
            return StepResult(nan, 0, gradients)
        return StepResult(self._loss.item(), self._count, gradients)


class ShapeStage(ShapeTrainer):
    """One stage of a model that has sizes only."""

    def __init__(self, shape: ModelShape, batch_size: int, cut: StageCut, activation: torch.dtype) -> None:
        """``activation``: the type of activations' elements. ``shape``: the shape of the whole model."""
        numbers = [number for chunk in cut.chunks for number in chunk]
        super().__init__(shape.part(numbers), batch_size)
        self._cut = cut
        self._activation = activation
        self._outputs = [shape.segments[chunk[-1]].outputs for chunk in cut.chunks]
        self._inputs = [shape.segments[chunk[0] - 1].outputs if chunk[0] else 0 for chunk in cut.chunks]
        sizes = torch.empty(batch_size, device="meta").tensor_split(cut.micro_batches)
        self._samples_of = [len(each) for each in sizes]

    def start(self, step: int) -> None:
        pass

    def forward(self, micro_batch: int, chunk: int, activation: Tensor | None) -> Tensor | None:
        if self._cut.makes_loss(chunk):
            return None
        return _sized(self._samples_of[micro_batch] * self._outputs[chunk], self._activation)

    def backward(self, micro_batch: int, chunk: int, gradient: Tensor | None, *, weights: bool) -> Tensor | None:
        if self._cut.reads_samples(chunk):
            return None
        return _sized(self._samples_of[micro_batch] * self._inputs[chunk], self._activation)

    def weights(self, micro_batch: int, chunk: int) -> None:
        pass

    def result(self) -> StepResult:
        return StepResult(nan, self._batch_size if self._cut.last else 0, self.values())


@cache
def _sized(elements: int, dtype: torch.dtype) -> Tensor:
    """Return the one meta tensor of this size and type. It is shared, so that messages are measured once."""
    return torch.empty(elements, dtype=dtype, device="meta")
