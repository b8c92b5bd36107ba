"""Frames, and what strangers say first."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import msgspec
import torch

from testbed.messages import MAX_HEADER_BYTES, Message, MessageKind, encode_header
from testbed.realtime.auth import MAX_HELLO_BYTES, decode_hello
from testbed.realtime.frame_codes import frame_code
from testbed.realtime.frames import MAGIC, BadFrame, FrameReader, frame_pieces
from tests.fuzz.trial import Input

KEY, MOST_BYTES = b"k" * 32, 1 << 20


def frame(chance: Random, folder: Path) -> Input:
    """A ``BadFrame``, or what was sent, or nothing yet: never a message that nobody sent."""
    sent = Message(
        MessageKind.PUSH, 1, 2, {"n": chance.randint(0, 99)}, (torch.ones(chance.randint(0, 300)),), sender="a/b"
    )
    whole = b"".join(frame_pieces(encode_header(sent), sent.parts, 0, frame_code("aes-gmac", KEY)))
    spoil = chance.choice((_flipped, _shortened, _doubled, _noise, _forged))
    data = spoil(whole, chance)

    def check(arrivals: list[object]) -> None:
        if arrivals and spoil is not _forged and data != whole:
            raise AssertionError(f"{len(arrivals)} messages that nobody sent")

    return Input(
        lambda: _fed(FrameReader(frame_code("aes-gmac", KEY), MOST_BYTES), data, chance),
        check=check,
        refusals=(BadFrame,),
    )


def _fed(reader: FrameReader, data: bytes, chance: Random) -> list[object]:
    arrivals: list[object] = []
    offset = 0
    while offset < len(data):
        count = min(len(reader.buffer()), len(data) - offset, chance.choice((1, 7, 1000, 1 << 20)))
        reader.buffer()[:count] = data[offset : offset + count]
        arrivals += reader.received(count)
        offset += count
    return arrivals


def _flipped(whole: bytes, chance: Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _shortened(whole: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(whole))
    return whole[:at] + whole[at + chance.randint(1, 50) :]


def _doubled(whole: bytes, chance: Random) -> bytes:
    return whole[: chance.randrange(len(whole))] + whole


def _noise(whole: bytes, chance: Random) -> bytes:
    return chance.randbytes(chance.randint(1, 4000))


def _forged(whole: bytes, chance: Random) -> bytes:
    """By somebody who knows the key: a header of any content, claims of any length, the right code."""
    header = chance.choice((_any_header, _almost_a_header, _nested))(chance)[: MAX_HEADER_BYTES + 1]
    body = chance.randbytes(chance.choice((0, 4, 400)))
    claimed = len(body) if chance.random() < 0.7 else chance.choice((0, 1, 1 << 19, 1 << 40, 2**63))
    start = struct.pack("!4sQIQ", MAGIC, 0, len(header), claimed) + header
    mac = frame_code("aes-gmac", KEY).begin(0)
    mac.update(start + body)
    return start + body + mac.digest()


def _any_header(chance: Random) -> bytes:
    return msgspec.msgpack.encode(_anything(chance, 3))


def _almost_a_header(chance: Random) -> bytes:
    """Right in all but the numbers."""
    sizes = (0, 1, 4, 100, -1, 2**31, 2**62, 2**63, 2**64 - 1)
    shapes = [[chance.choice(sizes) for _ in range(chance.randint(0, 9))] for _ in range(chance.randint(0, 3))]
    parts = [[chance.choice(("f4", "i8", "u1", "O", "")), shape] for shape in shapes]
    numbers = [chance.choice((0, -1, 2**63, 1.5, None)) if chance.random() < 0.1 else 1 for _ in range(5)]
    key, round_, sent_at_s, priority, channel = numbers
    kind = chance.choice(("push", "value", "register", "?"))
    return msgspec.msgpack.encode([kind, "a/b", key, round_, sent_at_s, priority, channel, {}, parts])


def _nested(chance: Random) -> bytes:
    """Lists in lists, as deep as a header may be long; in the place of the notes, or of all of it."""
    depth = chance.choice((10, 500, 5000, 60_000))
    inner = bytes([0x81, 0xA1, 0x61]) * min(depth, 20_000) if chance.random() < 0.5 else bytes([0x91]) * depth
    return (
        inner + bytes([0xC0])
        if chance.random() < 0.5
        else bytes([0x99]) + b"\xa4push\xa3a/b\x01\x01\x01\x01\x00" + inner
    )


def _anything(chance: Random, depth: int) -> object:
    leaf = chance.choice((None, True, -1, 2**63, 1.5, float("nan"), "push", "a/b", "", b"\0" * 9, "x" * 300))
    if depth == 0 or chance.random() < 0.4:
        return leaf
    items = [_anything(chance, depth - 1) for _ in range(chance.randint(0, 9))]
    return items if chance.random() < 0.7 else {str(at): item for at, item in enumerate(items)}


def hello(chance: Random, folder: Path) -> Input:
    """What a stranger says first: a ``ConnectionError``, or a hello whose secret is then asked for."""
    said = msgspec.msgpack.encode(["run", "a/b", "c/d", "data", chance.randbytes(16)])
    spoil = chance.choice((_flipped, _shortened, _doubled, _noise))
    data = spoil(said, chance) if chance.random() < 0.7 else _any_header(chance) + _nested(chance)
    return Input(lambda: decode_hello(data[:MAX_HELLO_BYTES]), refusals=(ConnectionError,))
