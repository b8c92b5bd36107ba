"""The content of one message between nodes of an overlay: tensors of several keys, each for one or more members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine import coding
from testbed.engine.aggregation import merge_notes, sum_in_order
from testbed.messages import Message, MessageKind
from testbed.world import Work, World


@dataclass(frozen=True, slots=True)
class Entry:
    """The encoded sum of the contributions of ``members`` (ranks) to ``key``; or the value of ``key``, for all."""

    members: tuple[int, ...]
    key: int
    parts: tuple[Tensor, ...]
    notes: dict[str, Any]


def pack(entries: Sequence[Entry]) -> tuple[list[Any], tuple[Tensor, ...]]:
    """Return metadata and one flat tensor per dtype, so that a message has few parts for any number of entries."""
    flats: dict[torch.dtype, list[Tensor]] = {}
    meta: list[Any] = []
    for entry in entries:
        layout = []
        for part in entry.parts:
            assert part.dim() == 1, "codecs make flat parts"
            flats.setdefault(part.dtype, []).append(part)
            layout.append([list(flats).index(part.dtype), part.numel()])
        meta.append([list(entry.members), entry.key, layout, entry.notes])
    return meta, tuple(flat[0] if len(flat) == 1 else torch.cat(flat) for flat in flats.values())


def unpack(meta: Sequence[Any], flats: Sequence[Tensor]) -> list[Entry]:
    """Inverse of ``pack``; parts share the memory of ``flats``."""
    positions = [0] * len(flats)
    entries = []
    for members, key, layout, notes in meta:
        parts = []
        for dtype, size in layout:
            parts.append(flats[dtype][positions[dtype] : positions[dtype] + size])
            positions[dtype] += size
        entries.append(Entry(tuple(members), key, tuple(parts), dict(notes)))
    return entries


async def packed(world: World, entries: Sequence[Entry]) -> tuple[list[Any], tuple[Tensor, ...]]:
    """Return the result of ``pack``, made as work of the node."""
    copied_bytes = sum(coding.payload_bytes(entry.parts) for entry in entries) if len(entries) > 1 else 0
    return await world.compute(Work("copy", size_bytes=copied_bytes), lambda: pack(entries))


async def summed(
    world: World, entries: Sequence[Entry], codec: Codec, sizes: Mapping[int, int], round_: int
) -> list[Entry]:
    """Return one entry per key: the sum, in the order of each entry's first member. ``codec`` has no memory."""
    by_key: dict[int, list[Entry]] = {key: [] for key in sizes}
    for entry in sorted(entries, key=lambda entry: entry.members[0]):
        by_key[entry.key].append(entry)
    contributions: dict[int, list[Tensor]] = {}
    for key, mine in by_key.items():
        if len(mine) > 1:
            pushes = [Message(MessageKind.PUSH, key, round_, parts=entry.parts) for entry in mine]
            contributions[key] = [await coding.decode(world, codec, push, sizes[key]) for push in pushes]
    work = Work("sum", round_, size_bytes=sum(coding.payload_bytes(entry.parts) for entry in entries))
    totals = await world.compute(work, lambda: {key: sum_in_order(each) for key, each in contributions.items()})
    sums = []
    for key, mine in by_key.items():
        if len(mine) == 1:
            sums += mine
            continue
        members = tuple(sorted(member for entry in mine for member in entry.members))
        parts = await coding.encode(world, codec, key, totals[key], round_)
        sums.append(Entry(members, key, parts, merge_notes([entry.notes for entry in mine])))
    return sums
