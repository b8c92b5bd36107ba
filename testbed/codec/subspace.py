"""Sends the coordinates of each row of a tensor in a fixed random subspace, whose orthonormal basis all ends share.

After Ramasinghe, Ajanthan, Avraham, Zuo and Long, Protocol Models: Scaling Decentralized Training with
Communication-Efficient Model Parallelism (arXiv 2506.01260). A is the activations of a micro-batch, with a row for each
token, and U [width, rank] has orthonormal columns:

    sent      A U          rank numbers for each row
    received  A U Uᵀ       the projection of A onto the subspace

The gradient with respect to A is the received gradient, projected in the same way. So with this codec in both
directions, a pipeline trains exactly the network that has the projection between its stages. The part of A outside the
subspace is lost for good. There is no error feedback, as the projection would remove that part from the next tensor,
too.

The paper avoids this loss by three measures that are not implemented here: an optimizer of its own keeps the output
matrices of the blocks in the subspace, every stage adds the embeddings anew, and the subspace moves now and then.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from testbed.codec.base import Codec, part
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.codec.options import SubspaceOptions


class Subspace(Codec):
    """Up: ``rank`` floats for each row of ``width`` elements (the last row may be shorter). Down: 4 n bytes."""

    size_only = True

    def __init__(self, options: SubspaceOptions, context: CodecContext) -> None:
        self._width = options.width
        self._rank = min(options.rank, options.width)
        self._seed = context.seed

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        rows = self._rows(tensor.numel())
        if tensor.is_meta:
            return (torch.empty(rows * self._rank, device="meta"),)
        check_finite(wire_key, tensor, "tensor")
        missing = rows * self._width - tensor.numel()
        matrix = torch.nn.functional.pad(tensor, (0, missing)).view(rows, self._width)
        return ((matrix @ self._basis().to(tensor)).flatten(),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        rows = self._rows(size)
        coordinates = part(parts, torch.float32, rows * self._rank)
        if coordinates.is_meta:
            return torch.empty(size, device="meta")
        matrix: Tensor = coordinates.view(rows, self._rank) @ self._basis().to(coordinates).T
        return matrix.flatten()[:size].contiguous()

    def _rows(self, size: int) -> int:
        return -(-size // self._width)

    def _basis(self) -> Tensor:
        return basis_of(self._seed, self._width, self._rank)


@lru_cache(maxsize=4)
def basis_of(seed: int, width: int, rank: int) -> Tensor:
    """Return the same orthonormal columns [width, rank] at all ends."""
    drawn = torch.randn(width, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    columns: Tensor = torch.linalg.qr(drawn).Q
    return columns.float()
