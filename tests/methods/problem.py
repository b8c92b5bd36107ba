"""A problem that several workers solve together: least squares with a matrix, each worker with samples of its own."""

from __future__ import annotations

import torch
from torch import Tensor

WORKERS = 3
STEPS = 100
TOLERANCE = 1e-5


class Problem:
    """Find ``rows`` × ``columns`` numbers W with X W ≈ Y. Equal for everyone that asks."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> None:
        generator = torch.Generator().manual_seed(1)
        self.shape = (rows, columns)
        self.first = torch.randn(rows, columns, generator=generator) / rows
        truth = torch.randn(rows, columns, generator=generator)
        self._inputs = [torch.randn(40, rows, generator=generator) for _ in range(WORKERS)]
        self._outputs = [each @ truth + torch.randn(40, columns, generator=generator) for each in self._inputs]
        self.first = self.first.to(dtype)
        self._inputs = [each.to(dtype) for each in self._inputs]
        self._outputs = [each.to(dtype) for each in self._outputs]

    def gradient(self, worker: int, values: Tensor) -> Tensor:
        """Return a worker's gradient at W."""
        inputs = self._inputs[worker]
        return inputs.T @ (inputs @ values - self._outputs[worker]) / len(inputs)

    def loss(self, values: Tensor) -> float:
        """Return the mean square error over all workers."""
        pairs = zip(self._inputs, self._outputs, strict=True)
        return sum(float((inputs @ values - outputs).square().mean()) for inputs, outputs in pairs) / WORKERS


def apart(ours: Tensor, reference: Tensor) -> float:
    """Return the largest difference of any element, as a share of the largest element."""
    return float((ours - reference).abs().max() / reference.abs().max())
