"""What a schedule moves: chunks of one flat tensor, which may be added, or parcels of any size, only copied."""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine import coding
from testbed.messages import Message, MessageKind
from testbed.policy.collective.schedule import RankTransfer
from testbed.world import Work, World

Parts = tuple[Tensor, ...]


class Flat:
    """A flat tensor, cut at ``bounds`` (``Schedule.bounds``). It is changed in place.

    ``codec`` must have no memory and change nothing the second time (fp16, say; None for none): what a rank sends
    through it, it holds itself from then on, so all ranks still end with the same bits.

    Of sizes without numbers (torch's meta device) nothing is added or copied: chunks of one size are one tensor.
    """

    def __init__(
        self, world: World, tensor: Tensor, bounds: tuple[int, ...], codec: Codec | None, round_: int
    ) -> None:  # fmt: skip
        self._world, self._tensor, self._bounds, self._codec, self._round = world, tensor, bounds, codec, round_
        self._empty, self._element_bytes = tensor.is_meta, tensor.element_size()

    def skips(self, transfer: RankTransfer) -> bool:
        """Return whether there is nothing to move; all ranks agree on that."""
        return self._bounds[transfer.start] == self._bounds[transfer.stop]

    async def read(self, transfer: RankTransfer) -> Parts | None:
        """Return the payload of a send, which later writes do not change; None when there is nothing to move."""
        if self.skips(transfer):
            return None
        mine = self._range(transfer)
        if self._codec is not None:
            return await self._through(mine, self._codec)
        if self._empty:
            return (mine,)
        return (await self._world.compute(Work("copy", size_bytes=mine.nbytes), mine.clone),)

    async def settle(self) -> None:
        """Pass the whole tensor through the codec, as ranks that sent the result on already have, so that all agree."""
        if self._codec is not None:
            await self._through(self._tensor, self._codec)

    async def _through(self, mine: Tensor, codec: Codec) -> Parts:
        """Return the payload of a part of the tensor, which then holds what its receiver decodes."""
        parts = await coding.encode(self._world, codec, 0, mine, self._round)
        decoded = await self._decoded(parts, mine.numel(), codec)
        if not self._empty:
            await self._world.compute(Work("copy", size_bytes=mine.nbytes), lambda: mine.copy_(decoded))
        return parts

    def _decoded(self, parts: Parts, size: int, codec: Codec) -> Coroutine[Any, Any, Tensor]:
        message = Message(MessageKind.COLLECTIVE, 0, self._round, parts=parts)
        return coding.decode(self._world, codec, message, size)

    async def write(self, transfer: RankTransfer, parts: Parts) -> None:
        """Add a received payload, or replace what is there."""
        elements = self._bounds[transfer.stop] - self._bounds[transfer.start]
        theirs = parts[0] if self._codec is None else await self._decoded(parts, elements, self._codec)
        assert theirs.numel() == elements, f"{theirs.numel()} elements where {elements} belong"
        if self._empty and not transfer.reduce:
            return
        kind, reads = ("sum", 2) if transfer.reduce else ("copy", 1)
        work = Work(kind, self._round, reads * elements * self._element_bytes)
        await self._world.compute(work, lambda: self._put(transfer, theirs))

    def _put(self, transfer: RankTransfer, theirs: Tensor) -> None:
        if self._empty:
            return
        mine = self._range(transfer)
        if transfer.reduce:
            mine += theirs
        else:
            mine.copy_(theirs)

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

    async def read(self, transfer: RankTransfer) -> Parts:
        assert transfer.stop == transfer.start + 1, "parcels travel one by one"
        return self.parcels[transfer.start]

    async def write(self, transfer: RankTransfer, parts: Parts) -> None:
        self.parcels[transfer.start] = parts


Buffer = Flat | Parcels  # one rank's memory in one operation
