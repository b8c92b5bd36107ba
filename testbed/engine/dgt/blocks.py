"""The blocks of a push, as both ends of DGT know them: how a payload is cut, and how a message carries a block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.codec import fourbit
from testbed.codec.options import CodecDeclarations
from testbed.costs import DECODE, ENCODE, cost_of
from testbed.messages import Message, MessageKind
from testbed.policy.order.dgt import FOUR_BITS, RELIABLE, Dgt, block_count

BLOCKS_ENCODED = cost_of("blocks", ENCODE, CodecDeclarations.encode_s_per_element)
BLOCKS_DECODED = cost_of("blocks", DECODE, CodecDeclarations.decode_s_per_element)
DTYPES = (torch.float32, torch.float16)


def elements_of(options: Dgt.Options, payload: Tensor) -> int:
    assert payload.dtype in DTYPES, f"DGT cuts dense payloads into blocks, not {payload.dtype}"
    return options.block // payload.element_size()


def rows(payload: Tensor, elements: int) -> Tensor:
    """Return the payload as one row per block: [blocks, elements], the last one padded with zeros."""
    count = block_count(payload.numel(), elements)
    missing = count * elements - payload.numel()
    return torch.nn.functional.pad(payload, (0, missing)).view(count, elements)


def important_part(payload: Tensor, elements: int, channels: Sequence[int]) -> Tensor:
    """Return the reliable blocks, concatenated without padding.

    Only the last block may be short, and it is always reliable (``channels_of``). So the receiver can compute the
    payload's size from the size of this part and the number of the other blocks, which are all full.
    """
    reliable = torch.tensor([channel == RELIABLE for channel in channels])
    size = payload.numel() - int((~reliable).sum()) * elements
    if payload.is_meta or size == payload.numel():
        return payload[:size]
    return rows(payload, elements)[reliable].view(-1)[:size]


def block_parts(block: Tensor, options: Dgt.Options) -> tuple[Tensor, ...]:
    """Return an unimportant block as parts of a message: 4-bit codes and their bounds, or the block itself."""
    return fourbit.encode(block) if options.code == FOUR_BITS else (block,)


def block_values(message: Message, elements: int) -> Tensor:
    """Return the block of a message in float32. Raise ``ValueError`` unless it has ``elements`` elements."""
    if len(message.parts) == 2:
        return fourbit.decode(*message.parts, elements)
    (block,) = message.parts
    if block.numel() != elements or block.dtype not in DTYPES:
        raise ValueError(f"a block of {block.numel()} elements of {block.dtype}, not {elements}")
    return block.float()


def block_message(push: Message, block: int, of: int, parts: tuple[Tensor, ...], channel: int) -> Message:
    """Return block number ``block`` of the ``of`` blocks of a push."""
    meta = {"block": block, "of": of} | epoch_of(push)
    return Message(MessageKind.BLOCK, push.key, push.round, meta, parts, push.priority, channel=channel)


def epoch_of(push: Message) -> dict[str, int]:
    """Return the membership epoch of a push as metadata for its other messages, which are void with the push."""
    return {name: push.meta[name] for name in ("epoch",) if name in push.meta}
