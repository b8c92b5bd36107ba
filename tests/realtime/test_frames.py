"""Frames: what is sent is what arrives, in any portions; everything else is refused."""

from __future__ import annotations

import random

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.engine.overlay.entries import Entry, pack, unpack
from testbed.errors import RunFailed
from testbed.messages import MAX_HEADER_BYTES, Message, MessageKind, encode_header, wire_bytes
from testbed.realtime.frame_codes import frame_code
from testbed.realtime.frames import (
    CLOSE,
    HEARTBEAT,
    PIECE_BYTES,
    SMALL_BYTES,
    Arrival,
    BadFrame,
    FrameReader,
    frame_pieces,
    memory_of,
)
from tests.for_each import for_each

KEY = b"k" * 32


def frame(message: Message | bytes, sequence: int = 0, key: bytes = KEY) -> bytes:
    header, parts = (message, ()) if isinstance(message, bytes) else (encode_header(message), message.parts)
    return b"".join(frame_pieces(header, parts, sequence, frame_code("aes-gmac", key)))


def reader(max_body_bytes: int = 1 << 30) -> FrameReader:
    return FrameReader(frame_code("aes-gmac", KEY), max_body_bytes)


def feed(target: FrameReader, data: bytes, portion: int = 1 << 30) -> list[Arrival | bytes]:
    """Hand ``data`` to the reader, at most ``portion`` bytes at a time."""
    frames, offset = [], 0
    while offset < len(data):
        count = min(len(target.buffer()), portion, len(data) - offset)
        target.buffer()[:count] = data[offset : offset + count]
        frames += target.received(count)
        offset += count
    return frames


def push(size: int = 1000) -> Message:
    return Message(
        MessageKind.PUSH, key=1, round=2, parts=(torch.arange(size, dtype=torch.float32),), sender="a/worker0"
    )


@given(sizes=st.lists(st.integers(0, 70_000), max_size=4), portion=st.integers(1, 200_000), meta=st.integers(-9, 9))
def test_frames_arrive_whole_in_whatever_portions(sizes: list[int], portion: int, meta: int) -> None:
    parts = tuple(torch.randint(-99, 99, (size,), dtype=torch.int16) for size in sizes)
    sent = Message(MessageKind.VALUE, meta={"m": meta}, parts=parts, sender="a/b")
    data = frame(sent, 0) + frame(HEARTBEAT, 1) + frame(sent, 2) + frame(CLOSE, 3)
    if portion < 50:
        data = frame(HEARTBEAT, 0) + frame(CLOSE, 1)
        assert feed(reader(), data, portion) == [HEARTBEAT, CLOSE]
        return
    first, beat, second, goodbye = feed(reader(), data, portion)
    assert (beat, goodbye) == (HEARTBEAT, CLOSE)
    for got in (first, second):
        assert isinstance(got, Arrival)
        assert got.message.meta == {"m": meta}
        assert got.overhead_bytes == wire_bytes(sent)[1]
        assert all(torch.equal(a, b) for a, b in zip(got.message.parts, parts, strict=True))


def test_tensors_are_sent_from_and_received_into_their_own_memory() -> None:
    tensor = torch.zeros(SMALL_BYTES, 3, dtype=torch.bfloat16)
    memory_of(tensor)[0:2] = b"\x80\x3f"  # 1.0
    assert tensor[0, 0] == 1
    message = Message(MessageKind.PUSH, parts=(tensor,))
    pieces = list(frame_pieces(encode_header(message), message.parts, 0, frame_code("aes-gmac", KEY)))
    tensor[0, 0] = 2
    assert bytes(pieces[1][:2]) == b"\x00\x40"


def test_a_long_body_goes_in_bounded_pieces() -> None:
    message = push(PIECE_BYTES)
    pieces = list(frame_pieces(encode_header(message), message.parts, 0, frame_code("aes-gmac", KEY)))
    assert len(pieces) == 6
    assert max(map(len, pieces)) == PIECE_BYTES


def test_many_small_frames_are_read_at_once_and_the_good_ones_before_a_bad_one_count() -> None:
    target, data = reader(), b"".join(frame(push(9), sequence) for sequence in (0, 1, 3))
    target.buffer()[: len(data)] = data
    got = []
    with pytest.raises(BadFrame, match="was expected"):
        for each in target.received(len(data)):
            got.append(each)
    assert len(got) == 2


def test_tensors_of_a_small_frame_keep_their_numbers_when_the_buffer_is_used_again() -> None:
    target = reader()
    (first,) = feed(target, frame(push(9)))
    feed(target, frame(Message(MessageKind.PUSH, parts=(torch.full((99,), 7.0),)), 1))
    assert isinstance(first, Arrival)
    assert torch.equal(first.message.parts[0], push(9).parts[0])


@for_each("size", [5, 30_000])
def test_every_altered_byte_is_noticed(size: int) -> None:
    good = frame(push(size))
    for index in [*range(min(len(good), 300)), *range(300, len(good), 1021), len(good) - 1]:
        bad = bytearray(good)
        bad[index] ^= 1
        target = reader(200_000)
        try:
            assert feed(target, bytes(bad)) == [], index
            assert feed(target, bytes(1 << 17)) == [], index  # what may be missing
        except BadFrame:
            continue
        raise AssertionError(f"byte {index} may be altered")


@for_each(("sequences", "accepted"), [((0, 1, 1), 2), ((0, 2, 1), 1), ((1,), 0), ((0, 0), 1)])
def test_replayed_reordered_and_dropped_frames_are_refused(sequences: tuple[int, ...], accepted: int) -> None:
    target, got = reader(), []
    with pytest.raises(BadFrame, match="was expected"):
        for sequence in sequences:
            got += feed(target, frame(push(), sequence))
    assert len(got) == accepted


def test_a_frame_of_another_connection_or_direction_is_refused() -> None:
    with pytest.raises(BadFrame, match="authentication"):
        feed(reader(), frame(push(), key=b"x" * 32))


def test_a_cut_frame_is_no_frame() -> None:
    data = frame(push())
    assert feed(reader(), data[:-1]) == []


def test_a_body_beyond_the_limit_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(BadFrame, match="a body of 4000 bytes; the limit is 3999"):
        feed(reader(3999), frame(push(1000)))


def test_a_header_beyond_the_limit_is_refused() -> None:
    with pytest.raises(BadFrame, match=f"a header of {MAX_HEADER_BYTES + 1} bytes; the limit is"):
        feed(reader(), frame(b"x" * (MAX_HEADER_BYTES + 1)))


def test_a_header_that_is_no_message_is_refused() -> None:
    with pytest.raises(BadFrame, match="header"):
        feed(reader(), frame(b"\x93\x01\x02\x03"))
    with pytest.raises(BadFrame, match="header"):
        feed(reader(), frame(b"\x99\xa4push\xa3a/b\x01\x01\x01\x01\x00" + b"\x81\xa1a" * 20_000 + b"\xc0"))  # nested


@for_each("shape", [[-1], [0, 2**64 - 1], [0, 2**40, 2**40], [1] * 9])
def test_a_shape_that_no_tensor_has_is_refused(shape: list[int]) -> None:
    header = ["push", "a/b", 1, 1, 0.0, 0, 0, {}, [["f4", shape]]]
    with pytest.raises(BadFrame, match="shape"):
        feed(reader(), frame(msgspec.msgpack.encode(header)))


def test_garbage_is_refused_at_its_first_24_bytes() -> None:
    for seed in range(200):
        target = reader()
        with pytest.raises(BadFrame):
            feed(target, random.Random(seed).randbytes(24))


def test_what_an_overlay_tells_of_thousands_of_slices_fits() -> None:
    """Three members' contributions to a chunk of two thousand slices and more, told one by one (``merge: exact``)."""
    entries = [Entry((member,), key, (torch.zeros(50),), {}) for member in range(3) for key in range(2200)]
    meta, parts = pack(entries)
    sent = Message(MessageKind.MERGE, 0, 1, {"root": "hub/global0", "entries": meta}, parts, sender="a/server0")
    assert len(encode_header(sent)) > 65_536
    (arrival,) = feed(reader(), frame(sent))
    assert isinstance(arrival, Arrival) and len(unpack(arrival.message.meta["entries"], arrival.message.parts)) == 6600


def test_a_header_over_the_limit_is_not_sent() -> None:
    with pytest.raises(RunFailed, match=r"merge of key 3: a header of \d+ bytes.*write larger slices"):
        encode_header(Message(MessageKind.MERGE, 3, meta={"entries": "x" * MAX_HEADER_BYTES}))
