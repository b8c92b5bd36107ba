"""The buffers of a schedule: chunks of one flat tensor, which may be added, or parcels of any size, only copied."""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.codec.base import Codec
from testbed.engine import coding
from testbed.messages import Message, MessageKind
from testbed.policy.collective.schedule import RankTransfer
from testbed.world import Work, World

Parts = tuple[Tensor, ...]


class Flat:
    """A flat tensor, cut into chunks at ``bounds`` (``Schedule.bounds``), and the values that replace chunks.

    No memory is written twice: sums are new tensors, and a rank sends received tensors on as they are. So nothing is
    copied until the result is put together.

    ``codec`` (``None``: values travel as they are) must be without memory and idempotent, as fp16 is. When a rank sends
    values through it, it replaces its own values by the decoded ones. So all ranks still end with the same bits.

    A tensor with a size but no numbers (torch's meta device) is never added or copied; equal chunks share one tensor.
    """

    def __init__(self, world: World, tensor: Tensor, bounds: tuple[int, ...], codec: Codec | None, round_: int) -> None:
        self._world = world
        self._bounds = bounds
        self._codec = codec
        self._round = round_
        self._whole = _Values(tensor, 0)
        self._replaced: dict[int, _Values] = {}  # by chunk
        self._empty = tensor.is_meta
        self._element_bytes = tensor.element_size()
        self._dtype = tensor.dtype

    def skips(self, transfer: RankTransfer) -> bool:
        """Return whether there is nothing to move; all ranks agree on that."""
        return self._bounds[transfer.start] == self._bounds[transfer.stop]

    async def read(self, transfer: RankTransfer) -> Parts | None:
        """Return the payload of a send, which later writes do not change; None when there is nothing to move."""
        if self.skips(transfer):
            return None
        mine = await self._range(transfer.start, transfer.stop)
        return (mine,) if self._codec is None else await self._through(transfer, mine, self._codec)

    async def result(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the values of chunks ``start`` to ``stop`` (default: all) in memory of their own.

        They have passed through the codec, like the values of ranks that have sent theirs.
        """
        every = RankTransfer(0, start, len(self._bounds) - 1 if stop is None else stop)
        if self._codec is not None:
            await self._through(every, await self._range(every.start, every.stop), self._codec)
        return await self._joined(every.start, every.stop)

    async def _through(self, transfer: RankTransfer, mine: Tensor, codec: Codec) -> Parts:
        """Return the payload of a range, and replace the range's values by those that the receiver decodes."""
        parts = await coding.encode(self._world, codec, 0, mine, self._round)
        decoded = await self._decoded(parts, mine.numel(), codec)
        if not self._empty:
            self._put(transfer, decoded)
        return parts

    def _decoded(self, parts: Parts, size: int, codec: Codec) -> Coroutine[Any, Any, Tensor]:
        message = Message(MessageKind.COLLECTIVE, 0, self._round, parts=parts)
        return coding.decode(self._world, codec, message, size)

    async def write(self, transfer: RankTransfer, parts: Parts) -> None:
        """Add a received payload, or replace what is there."""
        elements = self._bounds[transfer.stop] - self._bounds[transfer.start]
        theirs = parts[0] if self._codec is None else await self._decoded(parts, elements, self._codec)
        assert theirs.numel() == elements, f"{theirs.numel()} elements where {elements} belong"
        if transfer.reduce:
            mine = None if self._empty else await self._range(transfer.start, transfer.stop)
            work = Work("sum", self._round, 2 * elements * self._element_bytes)
            theirs = await self._world.compute(
                work, lambda: theirs if mine is None else buffers.computed(torch.add, mine, theirs)
            )
        if not self._empty:
            self._put(transfer, theirs)

    def _put(self, transfer: RankTransfer, tensor: Tensor) -> None:
        values = _Values(tensor, self._bounds[transfer.start])
        self._replaced.update(dict.fromkeys(range(transfer.start, transfer.stop), values))

    async def _range(self, start: int, stop: int) -> Tensor:
        """Return the values of some chunks, not to be changed; they are copied only if they are not contiguous."""
        if self._empty:
            return _sized(self._bounds[stop] - self._bounds[start], self._dtype)
        pieces = self._pieces(start, stop)
        return pieces[0] if len(pieces) == 1 else await self._joined(start, stop)

    async def _joined(self, start: int, stop: int) -> Tensor:
        if self._empty:
            return _sized(self._bounds[stop] - self._bounds[start], self._dtype)
        work = Work("copy", size_bytes=(self._bounds[stop] - self._bounds[start]) * self._element_bytes)
        return await self._world.compute(work, lambda: buffers.joined(self._pieces(start, stop)))

    def _pieces(self, start: int, stop: int) -> list[Tensor]:
        """Return the values of some chunks, those in one piece that lie side by side."""
        held = [self._replaced.get(chunk, self._whole) for chunk in range(start, stop)]
        cuts = [start, *(start + at for at in range(1, len(held)) if held[at] is not held[at - 1]), stop]
        return [held[a - start].between(self._bounds[a], self._bounds[b]) for a, b in pairwise(cuts)]


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of the elements from ``begin`` on."""

    tensor: Tensor
    begin: int

    def between(self, start: int, stop: int) -> Tensor:
        return self.tensor[start - self.begin : stop - self.begin]


@functools.lru_cache(maxsize=1024)
def _sized(elements: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(elements, dtype=dtype, device="meta")


class Parcels:
    """One parcel per chunk: any number of tensors of any shape. Only the sender needs to know their size.

    Parcels that travel in one message have the same number of tensors.
    """

    def __init__(self, parcels: dict[int, Parts]) -> None:
        self.parcels = parcels

    def skips(self, transfer: RankTransfer) -> bool:
        return False

    async def read(self, transfer: RankTransfer) -> Parts:
        return tuple(tensor for chunk in range(transfer.start, transfer.stop) for tensor in self.parcels[chunk])

    async def write(self, transfer: RankTransfer, parts: Parts) -> None:
        each = len(parts) // (transfer.stop - transfer.start)
        for number, chunk in enumerate(range(transfer.start, transfer.stop)):
            self.parcels[chunk] = parts[number * each : (number + 1) * each]


Buffer = Flat | Parcels  # one rank's memory in one operation
