"""DeMo: each worker keeps a momentum of its own, and sends only the largest frequency components of it.

Peng, Quesnelle and Kingma, DeMo: Decoupled momentum optimization, 2024 (arXiv 2411.19870). In every step:

    δ ← β δ + g               the momentum, which differs from worker to worker
    q ← Top-k(DCT(δ))         of each chunk the k largest coefficients, by magnitude
    δ ← δ − IDCT(q)           the sent part is taken out of the momentum
    θ ← θ − lr sign Σ IDCT(q) over all workers: ``optimizer: signsgd``

Checked against the authors' code (bloc97/DeMo, demo.py): β is 0.999 and k is 32 by default; chunks are tiles of a
matrix or runs of a vector, and their sides are the largest divisors of its dimensions up to ``chunk``, 64; the
transform is orthonormal. Their code differs from this file in two points. It multiplies the gradient by the step size
before adding it. As only signs are used, this makes no difference while the step size is constant; in a warm-up, it
gives less weight to the first gradients. And where only some workers send a coefficient, it takes the mean over these
workers; the paper, and this file, sum over all workers.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.bits import packed, packed_bytes, unpacked
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.codec.options import DeMoOptions
from testbed.key_shape import KeyShape


class DeMo(Codec):
    """Up: for each sent coefficient, its value in float32 and its place in the chunk, in as few bits as suffice."""

    has_memory = True
    sparse = True
    size_only = True
    by_shape = True
    remembers = ("_momenta",)

    def __init__(self, options: DeMoOptions, context: CodecContext) -> None:
        self._options = options
        self._shapes: dict[int, KeyShape] = {}
        self._momenta: dict[int, Tensor] = {}

    def declare(self, wire_key: int, shape: KeyShape) -> None:
        self._shapes[wire_key] = shape

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        chunks = self._chunks(wire_key, tensor.numel())
        if tensor.is_meta:
            return chunks.payload()
        check_finite(wire_key, tensor)
        momentum = self._momenta.get(wire_key)
        momentum = tensor.clone() if momentum is None else momentum * self._options.decay + tensor
        coefficients = chunks.transformed(momentum)
        places = coefficients.abs().topk(chunks.k).indices.sort().values
        values = coefficients.gather(1, places)
        self._momenta[wire_key] = momentum - chunks.restored(places, values)
        return packed(places.flatten(), chunks.bits), values.flatten()

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        chunks = self._chunks(wire_key, size)
        expected = [(part.dtype, part.numel()) for part in chunks.payload()]
        if [(part.dtype, part.numel()) for part in parts] != expected:
            raise ValueError(f"{len(parts)} parts are not the coefficients of {size} elements")
        octets, values = (part.flatten() for part in parts)
        if values.is_meta:
            return torch.empty(size, device="meta")
        places = unpacked(octets, chunks.bits, chunks.count * chunks.k).view(-1, chunks.k)
        if bool((places >= chunks.elements).any()):
            raise ValueError(f"a coefficient is outside of a chunk of {chunks.elements}")
        return chunks.restored(places, values.view(-1, chunks.k))

    def _chunks(self, wire_key: int, size: int) -> _Chunks:
        shape = self._shapes.get(wire_key, KeyShape((size,)))
        return _Chunks(shape.matrix, self._options.chunk, self._options.k)


class _Chunks:
    """The tiles of a matrix, and their orthonormal cosine transform (DCT-II). A vector is a matrix of one row.

    count, elements  number of tiles; number of elements of a tile
    k, bits          number of coefficients sent for a tile; number of bits of a coefficient's place in its tile
    """

    def __init__(self, matrix: tuple[int, int], side: int, k: int) -> None:
        self._height, self._width = (largest_divisor(length, side) for length in matrix)
        self._rows = matrix[0] // self._height
        self._columns = matrix[1] // self._width
        self.count = self._rows * self._columns
        self.elements = self._height * self._width
        self.k = min(k, self.elements)
        self.bits = max(1, (self.elements - 1).bit_length())

    def payload(self) -> tuple[Tensor, ...]:
        """Return a payload on the meta device: sizes and dtypes without numbers."""
        places = torch.empty(packed_bytes(self.count * self.k, self.bits), dtype=torch.uint8, device="meta")
        return places, torch.empty(self.count * self.k, device="meta")

    def transformed(self, flat: Tensor) -> Tensor:
        """Return the coefficients of each tile, float32 [count, elements]."""
        tiles = flat.view(self._rows, self._height, self._columns, self._width).transpose(1, 2)
        rows, columns = self._cosines(flat.device)
        return (rows @ tiles @ columns.T).reshape(self.count, self.elements)

    def restored(self, places: Tensor, values: Tensor) -> Tensor:
        """Return the flat tensor whose coefficients at ``places`` are ``values`` (both [count, k]), and 0 elsewhere."""
        spectrum = torch.zeros(self.count, self.elements, device=values.device).scatter_(1, places, values)
        tiles = spectrum.view(self._rows, self._columns, self._height, self._width)
        rows, columns = self._cosines(values.device)
        return (rows.T @ tiles @ columns).transpose(1, 2).flatten()

    def _cosines(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return cosines(self._height).to(device), cosines(self._width).to(device)


def largest_divisor(length: int, limit: int) -> int:
    """Return the largest divisor of ``length`` that is at most ``limit``."""
    return next(each for each in range(min(length, limit), 0, -1) if length % each == 0)


@cache
def cosines(length: int) -> Tensor:
    """Return the orthonormal matrix of the DCT-II, float32 [length, length]: row k is the k-th frequency."""
    frequencies = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    angles = math.pi / length * (torch.arange(length, dtype=torch.float64) + 0.5) * frequencies
    matrix = angles.cos() * math.sqrt(2 / length)
    matrix[0] /= math.sqrt(2)
    return matrix.float()
