"""Runs codecs as work of a node: encoding and decoding go through ``World.compute``, unless they cost nothing.

If a user's codec turns finite numbers into NaN or infinity, the run ends at that node: one round later, these numbers
would look like diverged training.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import torch
from torch import Tensor

from testbed.codec.base import Codec, SummedCodec, advanced
from testbed.costs import DECODE, DECODE_VALUE, ENCODE, ENCODE_VALUE
from testbed.devices.accelerator import accelerator_of
from testbed.errors import RunFailed
from testbed.finite import count_not_finite
from testbed.messages import Message
from testbed.world import Work, World

Parts = tuple[Tensor, ...]


async def encode(world: World, codec: Codec, key: int, tensor: Tensor, round_: int) -> Parts:
    work = codec_work(codec, ENCODE, tensor.numel(), round_)
    if work is None:
        return codec.encode(key, tensor)
    parts = await world.compute(work, _noting_size(work, lambda: codec.encode(key, tensor)))
    _check_numbers(world, codec, (tensor,), parts, f"round {round_}: what it sends of the contribution to key {key}")
    return parts


async def encode_value(world: World, codec: Codec, key: int, value: Tensor, round_: int) -> Parts:
    work = codec_work(codec, ENCODE_VALUE, value.numel(), round_)
    if work is None:
        return codec.encode_value(key, value)
    parts = await world.compute(work, _noting_size(work, lambda: codec.encode_value(key, value)))
    _check_numbers(world, codec, (value,), parts, f"round {round_}: what it sends of the value of key {key}")
    return parts


async def follow_value(world: World, codec: Codec, key: int, value: Tensor, parts: Parts) -> None:
    """Let ``codec`` update its state with the payload that another codec in the same state has encoded."""
    if codec.cost(ENCODE_VALUE, value.numel()) is None:
        return codec.follow_value(key, value, parts)  # the value is sent unchanged: nothing is copied
    work = Work("copy", size_bytes=payload_bytes(parts))
    return await world.compute(work, lambda: codec.follow_value(key, value, parts))


async def decode(world: World, codec: Codec, message: Message, size: int) -> Tensor:
    """Return the contribution that a message contains, of ``size`` elements."""
    work = message.decoding or codec_work(codec, DECODE, size, message.round, message.parts)
    if work is None:
        return codec.decode(message.key, message.parts, size)
    tensor = await world.compute(work, lambda: codec.decode(message.key, message.parts, size))
    what = f"the contribution to key {message.key} that it decodes, from {message.sender},"
    _check_numbers(world, codec, message.parts, (tensor,), f"round {message.round}: {what}")
    return tensor


async def decode_value(world: World, codec: Codec, message: Message, size: int) -> Tensor:
    """Return the value that a message contains, of ``size`` elements."""
    work = codec_work(codec, DECODE_VALUE, size, message.round, message.parts)
    if work is None:
        return codec.decode_value(message.key, message.parts, size)
    value = await world.compute(work, lambda: codec.decode_value(message.key, message.parts, size))
    what = f"the value of key {message.key} that it decodes, from {message.sender},"
    _check_numbers(world, codec, message.parts, (value,), f"round {message.round}: {what}")
    return value


async def summed(
    world: World,
    codec: SummedCodec,
    key: int,
    tensor: Tensor,
    contributors: int,
    round_: int,
    sum_up: Callable[[Tensor], Awaitable[Tensor]],
) -> Tensor:
    """Return the sum of all contributors' tensors. ``codec`` requests intermediate sums one after the other.

    ``sum_up`` takes this contributor's tensor and returns the sum over all contributors' tensors, with the same shape
    and on the same device.
    """
    steps = codec.summing(key, tensor, contributors)
    sums = None
    while True:
        work = codec_work(codec, ENCODE, tensor.numel(), round_)
        assert work is not None, "codecs that are summed compute"
        mine, total = await world.compute(work, partial(advanced, steps, sums))
        made = (total,) if mine is None and total is not None else mine or ()
        _check_numbers(world, codec, sums or (tensor,), made, f"round {round_}: what it makes of sums of key {key}")
        if mine is None:
            assert total is not None, "what is not to be summed is the sum"
            return total
        sums = tuple([await sum_up(part) for part in mine])


async def exact(world: World, tensor: Tensor) -> Tensor:
    """Return an unencoded tensor in main memory, ready to be sent without a codec."""
    (copy,) = await to_host(world, (tensor,))
    return copy


async def to_host(world: World, parts: Parts) -> Parts:
    """Return a payload in main memory: the payload itself, or its copy from the GPU (one transfer)."""
    accelerator = next(filter(None, (accelerator_of(part.device) for part in parts)), None)
    if accelerator is None:
        return parts
    work = Work("copy", size_bytes=payload_bytes(parts))
    return await world.compute(work, lambda: accelerator.to_host(parts))


async def to_device(world: World, parts: Parts, device: torch.device) -> Parts:
    """Return a payload in the memory of ``device``: the payload itself, or its copy to the GPU (one transfer)."""
    accelerator = accelerator_of(device)
    if accelerator is None:
        return parts
    work = Work("copy", size_bytes=payload_bytes(parts))
    return await world.compute(work, lambda: accelerator.to_device(parts))


def codec_work(codec: Codec, operation: str, size: int, round_: int, parts: Parts = ()) -> Work | None:
    """Return the work of ``operation`` on ``size`` elements; ``None`` if it costs nothing."""
    cost = codec.cost(operation, size)
    if cost is None:
        return None
    kind = "encode" if operation.startswith(ENCODE) else "decode"
    return Work(kind, round_, payload_bytes(parts), cost=cost, elements=size)


def payload_bytes(parts: Parts) -> int:
    return sum(part.nbytes for part in parts)


def _check_numbers(world: World, codec: Codec, given: Parts, made: Parts, what: str) -> None:
    """Raise ``RunFailed`` if a user's codec was given only finite numbers and has made NaN or infinity of them."""
    if not codec.outside:
        return
    count = _not_finite(made)
    if count == 0 or _not_finite(given):
        return
    raise RunFailed(
        f"{world.node}: codec {codec.outside}: {what} has {count} NaN or infinite numbers, but all that it was given "
        "are finite; correct the codec (`testbed check` tries it by itself)"
    )


def _not_finite(tensors: Parts) -> int:
    return sum(count_not_finite(each) for each in tensors if each.is_floating_point())


def _noting_size(work: Work, encode: Callable[[], Parts]) -> Callable[[], Parts]:
    """Return a function that calls ``encode`` and then sets the size of ``work`` to that of the payload."""

    def run() -> Parts:
        parts = encode()
        work.size_bytes = payload_bytes(parts)
        return parts

    return run
