"""The bytes of a connection: messages encoded as frames, frames decoded to messages. No sockets here.

    magic 4 | sequence number 8 | header length 4 | body length 8 | header | body | authentication code 32

All integers are big-endian. The header is that of ``testbed.messages``, the body the raw bytes of the tensors. The code
covers everything before it and is keyed per connection and direction; the sequence number counts the frames of one
direction from 0. A frame that is altered, replayed, reordered, cut or taken from another connection is thus refused.
Tensors are never copied: the sender hands out views of their memory, the receiver fills the memory of new ones.

A frame whose header is ``CLOSE`` or ``HEARTBEAT`` is a control frame without a message.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import torch

from testbed.messages import (
    FRAME_MAC_BYTES,
    FRAME_PREFIX_BYTES,
    MAX_HEADER_BYTES,
    MalformedMessage,
    Message,
    decode_header,
)
from testbed.realtime.frame_codes import FrameCode

MAGIC = b"TBF1"
# Large enough that the costs of a system call and of a hash call are small per byte; small enough that bytes are hashed
# while they are in the second-level cache, and that one connection holds the event loop for well under a millisecond.
PIECE_BYTES = 131_072

CLOSE = b"close"  # an orderly end: the sender will send nothing more
HEARTBEAT = b"heartbeat"  # the sender is alive

_PREFIX = struct.Struct("!4sQIQ")
assert _PREFIX.size == FRAME_PREFIX_BYTES


class BadFrame(ValueError):
    """The bytes from a peer are not the next frame of this connection."""


def memory_of(part: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, writable and not copied."""
    return memoryview(part.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # a Buffer from 3.12 on


def frame_pieces(
    header: bytes, parts: tuple[torch.Tensor, ...], sequence: int, code: FrameCode
) -> Iterator[memoryview]:
    """The bytes of one frame in order, each piece taken into its code just before it is yielded."""
    mac = code.begin(sequence)
    memories = [memory_of(part.detach().cpu().contiguous()) for part in parts if part.numel()]
    start = memoryview(_PREFIX.pack(MAGIC, sequence, len(header), sum(map(len, memories))) + header)
    mac.update(start)
    yield start
    for piece in _pieces(memories):
        mac.update(piece)
        yield piece
    yield memoryview(mac.digest())


def _pieces(memories: list[memoryview]) -> Iterator[memoryview]:
    for memory in memories:
        for offset in range(0, len(memory), PIECE_BYTES):
            yield memory[offset : offset + PIECE_BYTES]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A complete message; ``overhead_bytes``: what it took on the wire beside its payload."""

    message: Message
    overhead_bytes: int


class FrameReader:
    """Decodes one direction of a connection, in whatever portions its bytes arrive.

    Write received bytes to ``buffer()`` and pass their number to ``received``. Lengths are checked before memory is
    taken for them, and at most one frame is held.
    """

    def __init__(self, code: FrameCode, max_body_bytes: int) -> None:
        self._code, self._max_body_bytes = code, max_body_bytes
        self._sequence = 0
        self._view: memoryview
        self._begin()

    def buffer(self) -> memoryview:
        """The memory for the next bytes; never empty, at most ``PIECE_BYTES``."""
        return self._view

    def received(self, count: int) -> Arrival | bytes | None:
        """Account for ``count`` bytes written to ``buffer()``.

        Returns an ``Arrival``, or the header of a control frame, when a frame is complete, else None. Raises
        ``BadFrame``; the connection must then be closed.
        """
        self._view = self._view[count:]
        if len(self._view):
            return None
        try:
            self._view = next(self._frame)
        except StopIteration as complete:
            self._sequence += 1
            self._begin()
            return complete.value  # type: ignore[no-any-return]
        return None

    def _begin(self) -> None:
        self._frame = self._read_frame()
        self._view = next(self._frame)

    def _read_frame(self) -> Generator[memoryview, None, Arrival | bytes]:
        mac = self._code.begin(self._sequence)
        prefix = bytearray(FRAME_PREFIX_BYTES)
        yield memoryview(prefix)
        header_bytes, body_bytes = self._check_prefix(prefix)
        header = bytearray(header_bytes)
        yield memoryview(header)
        mac.update(prefix)
        mac.update(header)
        frame: Arrival | bytes = bytes(header)
        if frame not in (CLOSE, HEARTBEAT):
            message, parts = _decode(header, body_bytes)
            for piece in _pieces([memory_of(part) for part in parts if part.numel()]):
                yield piece
                mac.update(piece)
            frame = Arrival(message, FRAME_PREFIX_BYTES + header_bytes + FRAME_MAC_BYTES)
        code = bytearray(FRAME_MAC_BYTES)
        yield memoryview(code)
        if not hmac.compare_digest(code, mac.digest()):
            raise BadFrame("wrong authentication code")
        return frame

    def _check_prefix(self, prefix: bytearray) -> tuple[int, int]:
        magic, sequence, header_bytes, body_bytes = _PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise BadFrame("not a frame")
        if sequence != self._sequence:
            raise BadFrame(f"frame {sequence} where {self._sequence} was expected")
        if not 0 < header_bytes <= MAX_HEADER_BYTES:
            raise BadFrame(f"a header of {header_bytes} bytes; the limit is {MAX_HEADER_BYTES}")
        if body_bytes > self._max_body_bytes:
            raise BadFrame(f"a body of {body_bytes} bytes; the limit is {self._max_body_bytes}")
        return header_bytes, body_bytes


def _decode(header: bytearray, body_bytes: int) -> tuple[Message, list[torch.Tensor]]:
    try:
        return decode_header(memoryview(header), body_bytes)
    except MalformedMessage as error:
        raise BadFrame(str(error)) from error
