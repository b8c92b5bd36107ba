"""Codecs from outside that make NaN of finite numbers are named where they do, with round and direction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest
import torch
from torch import Tensor

from testbed.codec.fp16 import Fp16Codec, Fp16Options
from testbed.codec.over import CodecOver
from testbed.codec.table import make_codec
from testbed.engine import coding
from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.world import World
from tests.for_each import for_each
from tests.testing import broken

T = TypeVar("T")
OUTSIDE = f"{broken.__file__}:Scaled"
VALUES = torch.tensor([1.0, -2.0])
NAN = torch.tensor([1.0, float("nan")])


class Here:
    node = "east/worker0"

    async def compute(self, work: object, function: Callable[[], T]) -> T:
        return function()


class Spoiling(Fp16Codec):
    """Does what float16 does, and makes an infinity in one of the four methods."""

    def __init__(self, where: str) -> None:
        super().__init__(Fp16Options())
        self.where = where
        self.outside = "./mine.py:Mine"

    def _spoilt(self, where: str, tensor: Tensor) -> Tensor:
        return tensor * torch.inf if where == self.where else tensor

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (self._spoilt("encode", tensor).to(torch.float16),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._spoilt("decode", parts[0].float())

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return (self._spoilt("encode_value", value).to(torch.float16),)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._spoilt("decode_value", parts[0].float())


async def _there_and_back(codec: Any, tensor: Tensor) -> Tensor:
    world = cast(World, Here())
    parts = await coding.encode(world, codec, 3, tensor, 7)
    pushed = Message(MessageKind.PUSH, 3, 7, parts=parts, sender="east/worker1")
    decoded = await coding.decode(world, codec, pushed, 2)
    parts = await coding.encode_value(world, codec, 3, decoded, 7)
    return await coding.decode_value(world, codec, Message(MessageKind.VALUE, 3, 7, parts=parts, sender="hub"), 2)


@for_each(
    ("where", "told"),
    [
        ("encode", "what it sends of the contribution to key 3"),
        ("decode", "the contribution to key 3 that it decodes, from east/worker1,"),
        ("encode_value", "what it sends of the value of key 3"),
        ("decode_value", "the value of key 3 that it decodes, from hub,"),
    ],
)
def test_the_codec_is_named_that_makes_infinities(where: str, told: str) -> None:
    for codec in (Spoiling(where), CodecOver(Spoiling(where))):
        with pytest.raises(RunFailed) as caught:
            asyncio.run(_there_and_back(codec, VALUES))
        expected = f"east/worker0: codec ./mine.py:Mine: round 7: {told} has 2 NaN or infinite numbers"
        assert str(caught.value).startswith(expected)


def test_numbers_that_were_not_finite_before_are_not_the_codecs() -> None:
    asyncio.run(_there_and_back(Spoiling(""), VALUES))
    assert asyncio.run(_there_and_back(Spoiling("encode"), NAN)).isnan().any()


def test_codecs_from_outside_are_looked_at_and_shipped_ones_are_not() -> None:
    assert make_codec(OUTSIDE, {}).outside == OUTSIDE
    assert make_codec("fp16", {}).outside == ""
