"""PowerSGD sends the two factors of a low-rank approximation of each matrix. Each factor can be summed over workers.

Vogels, Karimireddy and Jaggi, PowerSGD: Practical low-rank gradient compression for distributed optimization, NeurIPS
2019 (arXiv 1905.13727). M is a worker's gradient plus its error; Q is at first that of the previous step:

    P ← mean M Q                 over all workers: the first sum
    P̂ ← orthonormalise(P)
    Q ← mean Mᵀ P̂                the second sum
    error ← M − P̂ Qᵀ             and P̂ Qᵀ is the mean gradient

All-reduce makes both sums, as in the paper. Servers make them as well if the optimizer is at the workers: P and Q are
then keys on the servers (``engine.summed_store``). If the optimizer is at the servers, each child computes both factors
from its own gradient alone and sends them together, which takes as many bytes.

Checked against the authors' code (epfml/powersgd). The code of the paper (paper-code/gradient_reducers.py) is as above.
The package (powersgd/powersgd.py) alternates: each step makes only one of the two sums. It computes a worker's error
against that worker's own part of the approximation, which gives the same means, as only sums of errors are sent. Two
rules come from the package: a vector, or a matrix whose factors are not ``least_saving`` times smaller, travels
unchanged, and so does every tensor of the first ``start`` steps. The package orthonormalises by Gram-Schmidt, this file
by Householder reflections; the columns span the same space.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from testbed.codec.base import Parts, SummedCodec
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.codec.options import PowerSgdOptions
from testbed.key_shape import KeyShape


class PowerSgd(SummedCodec):
    """Up: ``rank`` · (rows + columns) floats for a matrix. Down, with servers: 4 n bytes."""

    has_memory = True
    size_only = True
    by_shape = True
    summed = True
    remembers = ("_steps", "_errors", "_factors")

    def __init__(self, options: PowerSgdOptions, context: CodecContext) -> None:
        self._options = options
        self._seed = context.seed
        self._shapes: dict[int, KeyShape] = {}
        self._steps: dict[int, int] = {}
        self._errors: dict[int, Tensor] = {}
        self._factors: dict[int, Tensor] = {}  # Q of the step before

    def declare(self, wire_key: int, shape: KeyShape) -> None:
        self._shapes[wire_key] = shape

    def summing(self, wire_key: int, tensor: Tensor, contributors: int) -> Generator[Parts, Parts, Tensor]:
        step = self._steps.get(wire_key, 0)
        self._steps[wire_key] = step + 1
        rows, columns = self._matrix(wire_key, tensor.numel())
        if step < self._options.start or not self._saves(rows, columns):
            (total,) = yield (tensor,)
            return total
        if not tensor.is_meta:
            check_finite(wire_key, tensor)
        matrix = (tensor + self._errors.get(wire_key, 0.0)).view(rows, columns)
        factor = self._factors.get(wire_key)
        if factor is None:
            factor = self._first_factor(wire_key, columns).to(tensor)
        (left,) = yield (matrix @ factor,)
        left = orthonormalised(left / contributors)
        (right,) = yield (matrix.T @ left,)
        right = right / contributors
        approximation = (left @ right.T).flatten()
        if not tensor.is_meta:
            self._factors[wire_key] = right
            self._errors[wire_key] = matrix.flatten() - approximation
        return approximation * contributors

    def sums(self, wire_key: int, size: int) -> tuple[int, ...]:
        rows, columns = self._matrix(wire_key, size)
        rank = min(self._options.rank, rows, columns)
        return (rows * rank, columns * rank) if self._saves(rows, columns) else ()

    def decode(self, wire_key: int, parts: Parts, size: int) -> Tensor:
        rows, columns = self._matrix(wire_key, size)
        if [part.dtype for part in parts] != [torch.float32] * len(parts):
            raise ValueError("factors are float32")
        if len(parts) == 1 and parts[0].numel() == size:
            return parts[0].flatten()
        rank = min(self._options.rank, rows, columns)
        if [part.numel() for part in parts] != [rows * rank, columns * rank] or not self._saves(rows, columns):
            raise ValueError(f"{len(parts)} parts are not the factors of {rows} × {columns}")
        left, right = parts
        return (orthonormalised(left.view(rows, rank)) @ right.view(columns, rank).T).flatten()

    def _matrix(self, wire_key: int, size: int) -> tuple[int, int]:
        return self._shapes.get(wire_key, KeyShape((size,))).matrix

    def _saves(self, rows: int, columns: int) -> bool:
        sent = min(self._options.rank, rows, columns) * (rows + columns)
        return sent * self._options.least_saving <= rows * columns

    def _first_factor(self, wire_key: int, columns: int) -> Tensor:
        """Return a random Q for the first step, the same at all workers."""
        generator = torch.Generator().manual_seed(self._seed + wire_key)
        return torch.randn(columns, min(self._options.rank, columns), generator=generator)


def orthonormalised(matrix: Tensor) -> Tensor:
    """Return orthonormal columns that span those of ``matrix``."""
    columns: Tensor = torch.linalg.qr(matrix).Q
    return columns
