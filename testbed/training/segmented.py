"""A step of real training, segment by segment: the same operations as the whole step, hence the same bits.

Each segment's autograd graph begins at a detached copy of its input. Its backward pass starts from the next segment's
gradient with respect to that copy, which is the value that autograd passes on in a whole backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from testbed.training.models.segments import Segment


def mean_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits [..., classes] for labels [...]."""
    return functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


class TorchStep:
    """Forward and backward over one batch, one segment at a time; see ``SegmentedStep`` for the order."""

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
