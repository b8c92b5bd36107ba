"""The bytes of a connection: encodes messages as frames, and decodes frames. Uses no sockets.

    magic 4 | sequence number 8 | header length 4 | body length 8 | header | body | authentication code 32

All integers are big-endian. The header is that of ``testbed.messages``, the body the raw bytes of the tensors. The code
covers everything before it; each direction of each connection has its own key. The sequence number counts the frames of
one direction from 0. The reader thus refuses a frame that is altered, replayed, reordered, cut, or taken from another
connection.

Small frames are written and read many at a time, because the interpreter's time per call dominates their cost. The
tensors of large frames are not copied: the sender yields views of their memory, the receiver reads into new tensors.

A frame whose header is ``CLOSE`` or ``HEARTBEAT`` is a control frame without a message.
"""

from __future__ import annotations

import ctypes
import hmac
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from testbed.messages import (
    FRAME_MAC_BYTES,
    FRAME_PREFIX_BYTES,
    MAX_HEADER_BYTES,
    MalformedMessage,
    Message,
    decode_header,
    decode_message,
)
from testbed.realtime.frame_codes import FrameCode, Mac

MAGIC = b"TBF1"
# Large enough that a system call, a call of the authentication code and the interpreter cost little per byte. Small
# enough that bytes are authenticated while they are in the second-level cache, and that one connection holds the event
# loop for well under a millisecond.
PIECE_BYTES = 262_144
SMALL_BYTES = 16_384  # a frame with at most this many bytes of tensors is copied into one piece
BUFFER_BYTES = 65_536  # of a reader; it decodes frames that fit from here, and reads larger ones into their tensors

CLOSE = b"close"  # an orderly end: the sender will send nothing more
HEARTBEAT = b"heartbeat"  # the sender is alive

_PREFIX = struct.Struct("!4sQIQ")
assert _PREFIX.size == FRAME_PREFIX_BYTES


class BadFrame(ValueError):
    """The bytes from a peer are not the next frame of this connection."""


def memory_of(part: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, as a writable view."""
    return memoryview(part.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]  # a Buffer from 3.12 on


def _bytes_of(part: torch.Tensor) -> bytes:
    """Return a copy of a tensor's bytes. On a CPU this avoids the six calls that a view of its memory takes."""
    if part.is_cpu and part.is_contiguous():
        return ctypes.string_at(part.data_ptr(), part.nbytes)
    return bytes(memory_of(part.detach().cpu().contiguous()))


def small_frame(header: bytes, parts: tuple[torch.Tensor, ...], sequence: int, code: FrameCode) -> bytes:
    """Return a copy of the bytes of one frame; for at most ``SMALL_BYTES`` of tensors."""
    body = b"".join([_bytes_of(part) for part in parts])
    data = _PREFIX.pack(MAGIC, sequence, len(header), len(body)) + header + body
    return data + code.of(sequence, data)


def frame_pieces(
    header: bytes, parts: tuple[torch.Tensor, ...], sequence: int, code: FrameCode
) -> Iterator[memoryview]:
    """Yield the bytes of one frame in order. Each piece enters the frame's code just before it is yielded."""
    if sum([part.nbytes for part in parts]) <= SMALL_BYTES:
        yield memoryview(small_frame(header, parts, sequence, code))
        return
    memories = [memory_of(part.detach().cpu().contiguous()) for part in parts if part.numel()]
    start = _PREFIX.pack(MAGIC, sequence, len(header), sum(map(len, memories))) + header
    mac = code.begin(sequence)
    mac.update(start)
    yield memoryview(start)
    for piece in _pieces(memories):
        mac.update(piece)
        yield piece
    yield memoryview(mac.digest())


def _pieces(memories: list[memoryview]) -> Iterator[memoryview]:
    for memory in memories:
        for offset in range(0, len(memory), PIECE_BYTES):
            yield memory[offset : offset + PIECE_BYTES]


class Arrival(NamedTuple):
    """A complete message. ``overhead_bytes``: its bytes on the wire other than its payload.

    ``began_s``: when its first bytes were read, on the reader's clock.
    """

    message: Message
    overhead_bytes: int
    began_s: float = 0.0
    payload_bytes: int = 0


class FrameReader:
    """Decodes one direction of a connection, in whatever portions its bytes arrive.

    Write received bytes to ``buffer()`` and pass their number to ``received``. The reader checks lengths before it
    allocates memory for them, and holds at most one incomplete frame.
    """

    def __init__(self, code: FrameCode, max_body_bytes: int) -> None:
        self._code = code
        self._max_body_bytes = max_body_bytes
        self._sequence = 0
        self._memory = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0  # range of the bytes in ``_memory`` that are not decoded yet
        self._large: _LargeFrame | None = None
        self._began_s = 0.0  # when the first bytes of the next frame were read

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes: never empty, at most ``PIECE_BYTES`` or the size of one header."""
        if self._large is not None and self._large.pieces:
            return self._large.pieces[0]
        return self._memory[self._end :]

    def received(self, count: int, now_s: float = 0.0) -> Iterator[Arrival | bytes]:
        """Account for ``count`` bytes written to ``buffer()`` at ``now_s``, and yield the frames that are complete.

        A frame is an ``Arrival``, or the header of a control frame. At a bad frame, raises ``BadFrame`` after it has
        yielded the good frames before; close the connection then. Exhaust the iterator before calling ``buffer`` again.
        """
        if self._large is not None and self._large.pieces:
            self._large.received(count)
            return
        if self._start == self._end and self._large is None:
            self._began_s = now_s
        self._end += count
        while (frame := self._next()) is not None:
            self._sequence += 1
            self._began_s = now_s
            yield frame
        if self._start:
            rest = self._end - self._start
            self._memory[:rest] = self._memory[self._start : self._end]
            self._start = 0
            self._end = rest

    def _next(self) -> Arrival | bytes | None:
        """Return the next frame if it is complete. Of an incomplete large frame, copy what is there to its tensors."""
        if self._large is not None:
            return self._finished(self._large)
        start = self._start
        here = self._end - self._start
        if here < FRAME_PREFIX_BYTES:
            return None
        header_bytes, body_bytes = self._check_prefix(start)
        body = start + FRAME_PREFIX_BYTES + header_bytes
        stop = body + body_bytes
        if stop + FRAME_MAC_BYTES <= self._end:
            return self._whole(start, body, stop)
        if stop + FRAME_MAC_BYTES - start > BUFFER_BYTES:
            if here >= FRAME_PREFIX_BYTES + header_bytes and body_bytes:
                self._large = self._begin_large(start, body, body_bytes)
                return self._finished(self._large)
            self._make_room(FRAME_PREFIX_BYTES + header_bytes + FRAME_MAC_BYTES)
        return None

    def _whole(self, start: int, body: int, stop: int) -> Arrival | bytes:
        """Decode a frame that lies in the buffer from ``start`` on, with its tensors from ``body`` to ``stop``."""
        memory = self._memory
        self._start = stop + FRAME_MAC_BYTES
        _compare(memory[stop : self._start], self._code.of(self._sequence, memory[start:stop]))
        header = memory[start + FRAME_PREFIX_BYTES : body]
        if len(header) <= len(HEARTBEAT) and header in (CLOSE, HEARTBEAT):
            return bytes(header)
        try:
            message = decode_message(header, memory[body:stop])
        except MalformedMessage as error:
            raise BadFrame(str(error)) from error
        return Arrival(message, body - start + FRAME_MAC_BYTES, self._began_s, stop - body)

    def _begin_large(self, start: int, body: int, body_bytes: int) -> _LargeFrame:
        mac = self._code.begin(self._sequence)
        mac.update(bytes(self._memory[start:body]))
        try:
            message, parts = decode_header(self._memory[start + FRAME_PREFIX_BYTES : body], body_bytes)
        except MalformedMessage as error:
            raise BadFrame(str(error)) from error
        pieces = deque(_pieces([memory_of(part) for part in parts if part.numel()]))
        arrival = Arrival(message, body - start + FRAME_MAC_BYTES, self._began_s, body_bytes)
        large = _LargeFrame(arrival, mac, pieces)
        self._start = body + large.copy(self._memory[body : self._end])
        return large

    def _finished(self, large: _LargeFrame) -> Arrival | None:
        if large.pieces or self._end - self._start < FRAME_MAC_BYTES:
            return None
        code = self._memory[self._start : self._start + FRAME_MAC_BYTES]
        self._start += FRAME_MAC_BYTES
        _compare(code, large.mac.digest())
        self._large = None
        return large.arrival

    def _make_room(self, size: int) -> None:
        """Enlarge the buffer if it is smaller than ``size`` bytes, which a large header needs."""
        if size > len(self._memory):
            larger = memoryview(bytearray(size))
            larger[self._start : self._end] = self._memory[self._start : self._end]
            self._memory = larger

    def _check_prefix(self, start: int) -> tuple[int, int]:
        magic, sequence, header_bytes, body_bytes = _PREFIX.unpack_from(self._memory, start)
        if magic != MAGIC:
            raise BadFrame("not a frame")
        if sequence != self._sequence:
            raise BadFrame(f"frame {sequence} where {self._sequence} was expected")
        if not 0 < header_bytes <= MAX_HEADER_BYTES:
            raise BadFrame(f"a header of {header_bytes} bytes; the limit is {MAX_HEADER_BYTES}")
        if body_bytes > self._max_body_bytes:
            raise BadFrame(f"a body of {body_bytes} bytes; the limit is {self._max_body_bytes}")
        return header_bytes, body_bytes


@dataclass(slots=True)
class _LargeFrame:
    """A frame whose tensors are being filled. ``pieces``: the memory still to be filled, in order."""

    arrival: Arrival
    mac: Mac
    pieces: deque[memoryview]

    def copy(self, data: memoryview) -> int:
        """Copy the first bytes of the body from ``data``; return how many bytes of ``data`` belong to the body."""
        taken = 0
        while self.pieces and taken < len(data):
            some = data[taken : taken + len(self.pieces[0])]
            self.pieces[0][: len(some)] = some
            self.received(len(some))
            taken += len(some)
        return taken

    def received(self, count: int) -> None:
        """Account for ``count`` bytes written to the first piece."""
        piece = self.pieces.popleft()
        if count < len(piece):
            self.pieces.appendleft(piece[count:])
        self.mac.update(piece[:count])


def _compare(code: memoryview, expected: bytes) -> None:
    if not hmac.compare_digest(code, expected):
        raise BadFrame("wrong authentication code")
