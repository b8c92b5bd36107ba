"""Codes of frames: what each of them notices, and that AES-GMAC is the standard's."""

from __future__ import annotations

import pytest
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from testbed.errors import ScenarioError
from testbed.messages import FRAME_MAC_BYTES, Message, MessageKind, encode_header
from testbed.realtime.frame_codes import _AT_ONCE_BYTES, CODES, frame_code
from testbed.realtime.frames import Arrival, BadFrame, FrameReader, frame_pieces
from tests.for_each import for_each

KEY = bytes(range(32))
SIZES = [0, 100, _AT_ONCE_BYTES, 100_000]  # of the body; the last two go through a context


def frame(kind: str, size: int, number: int = 0, key: bytes = KEY) -> bytes:
    message = Message(MessageKind.PUSH, 1, 2, parts=(torch.arange(size, dtype=torch.uint8),), sender="a/b")
    return b"".join(frame_pieces(encode_header(message), message.parts, number, frame_code(kind, key)))


def read(kind: str, data: bytes) -> list[Arrival | bytes]:
    reader, found = FrameReader(frame_code(kind, KEY), 1 << 20), []
    while data:
        count = min(len(data), len(reader.buffer()))
        reader.buffer()[:count] = data[:count]
        data = data[count:]
        found += reader.received(count)
    return found


@for_each("size", SIZES)
@for_each("kind", CODES)
def test_frames_come_through_and_have_one_size(kind: str, size: int) -> None:
    first, second = frame(kind, size), frame(kind, size, 1)
    arrivals = read(kind, first + second)
    assert [type(arrival) for arrival in arrivals] == [Arrival, Arrival]
    assert len(first) == len(frame("none", size))


@for_each("size", SIZES)
def test_strangers_bytes_are_refused(size: int) -> None:
    kind = "aes-gmac"
    good, other = frame(kind, size), frame(kind, size, key=bytes(32))
    for at in (len(good) - 1, len(good) - 16, len(good) // 2, 30):
        altered = bytearray(good)
        altered[at] ^= 1
        with pytest.raises(BadFrame):
            read(kind, bytes(altered))
    with pytest.raises(BadFrame, match="authentication"):
        read(kind, other)
    for sequence in ((good, good), (frame(kind, size, 1), good)):  # repeated; in another order
        with pytest.raises(BadFrame):
            read(kind, b"".join(sequence))
    renumbered = frame(kind, size, 1)[4:12]
    with pytest.raises(BadFrame, match="authentication"):  # repeated, with the number that is expected
        read(kind, good + good[:4] + renumbered + good[12:])


@for_each("size", SIZES)
def test_gmac_is_the_tag_of_gcm_over_data_that_is_not_encrypted(size: int) -> None:
    """However it is cut into pieces, small or large; the nonce is the number."""
    data = bytes(range(256)) * (size // 256 + 1)
    for number, cut in ((0, 7), (5, 5000), (1 << 40, len(data))):
        mac = frame_code("aes-gmac", KEY).begin(number)
        for at in range(0, len(data), cut):
            mac.update(memoryview(data)[at : at + cut])
        tag = AESGCM(KEY).encrypt(number.to_bytes(12, "big"), b"", data)
        assert mac.digest() == bytes(FRAME_MAC_BYTES - 16) + tag


def test_unknown_codes_are_named() -> None:
    with pytest.raises(ScenarioError, match=r"transport\.mac.*'md5'.*aes-gmac"):
        frame_code("md5", KEY)
