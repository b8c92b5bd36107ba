"""What a schedule moves: chunks of one flat tensor, which may be added, or parcels of any size, only copied."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.policy.collective.schedule import RankTransfer

Parts = tuple[Tensor, ...]


class Flat:
    """A flat tensor, cut at ``bounds`` (``Schedule.bounds``). It is changed in place.

    ``codec`` must have no memory and change nothing the second time (fp16, say; None for none): what a rank sends
    through it, it holds itself from then on, so all ranks still end with the same bits.

    Of sizes without numbers (torch's meta device) nothing is added or copied: chunks of one size are one tensor.
    """

    def __init__(self, tensor: Tensor, bounds: tuple[int, ...], codec: Codec | None) -> None:
        self._tensor, self._bounds, self._codec = tensor, bounds, codec
        self._empty, self._element_bytes = tensor.is_meta, tensor.element_size()

    def skips(self, transfer: RankTransfer) -> bool:
        """Return whether there is nothing to move; all ranks agree on that."""
        return self._bounds[transfer.start] == self._bounds[transfer.stop]

    def read(self, transfer: RankTransfer) -> Parts | None:
        """Return the payload of a send, which later writes do not change; None when there is nothing to move."""
        if self.skips(transfer):
            return None
        mine = self._range(transfer)
        if self._codec is None:
            return (mine if self._empty else mine.clone(),)
        parts = self._codec.encode(0, mine)
        mine.copy_(self._codec.decode(0, parts, mine.numel()))
        return parts

    def settle(self) -> None:
        """Pass the whole tensor through the codec, as ranks that sent the result on already have, so that all agree."""
        if self._codec is not None:
            size = self._tensor.numel()
            self._tensor.copy_(self._codec.decode(0, self._codec.encode(0, self._tensor), size))

    def write(self, transfer: RankTransfer, parts: Parts) -> None:
        """Add a received payload, or replace what is there."""
        if self._empty and self._codec is None:
            elements = self._bounds[transfer.stop] - self._bounds[transfer.start]
            assert parts[0].numel() == elements, f"{parts[0].numel()} elements where {elements} belong"
            return
        mine = self._range(transfer)
        theirs = parts[0] if self._codec is None else self._codec.decode(0, parts, mine.numel())
        assert theirs.numel() == mine.numel(), f"{theirs.numel()} elements where {mine.numel()} belong"
        if self._empty:
            return
        if transfer.reduce:
            mine += theirs
        else:
            mine.copy_(theirs)

    def work_bytes(self, transfer: RankTransfer) -> int:
        """Return the bytes that ``write`` reads as a computation; 0 when it only copies."""
        elements = self._bounds[transfer.stop] - self._bounds[transfer.start]
        return 2 * elements * self._element_bytes if transfer.reduce else 0

    def _range(self, transfer: RankTransfer) -> Tensor:
        start, stop = self._bounds[transfer.start], self._bounds[transfer.stop]
        return _sized(stop - start, self._tensor.dtype) if self._empty else self._tensor[start:stop]


@functools.lru_cache(maxsize=1024)
def _sized(elements: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(elements, dtype=dtype, device="meta")


class Parcels:
    """One parcel per chunk: any number of tensors of any shape. Only the sender needs to know their size."""

    def __init__(self, parcels: dict[int, Parts]) -> None:
        self.parcels = parcels

    def skips(self, transfer: RankTransfer) -> bool:
        return False

    def read(self, transfer: RankTransfer) -> Parts:
        assert transfer.stop == transfer.start + 1, "parcels travel one by one"
        return self.parcels[transfer.start]

    def write(self, transfer: RankTransfer, parts: Parts) -> None:
        self.parcels[transfer.start] = parts

    def work_bytes(self, transfer: RankTransfer) -> int:
        return 0


Buffer = Flat | Parcels  # one rank's memory in one operation
