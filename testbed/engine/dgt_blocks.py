"""What both ends of DGT know of a push: how its payload is cut into blocks, and how a block looks in a message."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.codec import fourbit
from testbed.messages import Message, MessageKind
from testbed.policy.order.dgt import FOUR_BITS, Dgt, block_count

DTYPES = (torch.float32, torch.float16)


def elements_of(options: Dgt.Options, payload: Tensor) -> int:
    """Elements of one block of this payload."""
    assert payload.dtype in DTYPES, f"DGT cuts dense payloads into blocks, not {payload.dtype}"
    return options.block // payload.element_size()


def rows(payload: Tensor, elements: int) -> Tensor:
    """The payload as one row per block; the last is filled up with zeros."""
    count = block_count(payload.numel(), elements)
    missing = count * elements - payload.numel()
    return torch.nn.functional.pad(payload, (0, missing)).view(count, elements)


def important_part(payload: Tensor, elements: int, channels: Sequence[int]) -> Tensor:
    """The reliable blocks, one after another. The last block is always one of them, so only the end may be short."""
    reliable = torch.tensor([channel == 0 for channel in channels])
    if payload.is_meta or bool(reliable.all()):
        return payload if bool(reliable.all()) else payload[: _important_size(payload.numel(), elements, reliable)]
    return rows(payload, elements)[reliable].view(-1)[: _important_size(payload.numel(), elements, reliable)]


def _important_size(size: int, elements: int, reliable: Tensor) -> int:
    return size - int((~reliable).sum()) * elements


def block_parts(block: Tensor, options: Dgt.Options) -> tuple[Tensor, ...]:
    """An unimportant block as parts of a message."""
    return fourbit.encode(block) if options.code == FOUR_BITS else (block,)


def block_values(message: Message, elements: int) -> Tensor:
    """The block of a message in float32. Raises ``ValueError`` when it is none of ``elements`` elements."""
    if len(message.parts) == 2:
        return fourbit.decode(*message.parts, elements)
    (block,) = message.parts
    if block.numel() != elements or block.dtype not in DTYPES:
        raise ValueError(f"a block of {block.numel()} elements of {block.dtype}, not {elements}")
    return block.float()


def block_message(push: Message, block: int, of: int, parts: tuple[Tensor, ...], channel: int) -> Message:
    """Block number ``block`` of the ``of`` blocks of a push."""
    return Message(
        MessageKind.BLOCK, push.key, push.round, {"block": block, "of": of}, parts, push.priority, channel=channel
    )
