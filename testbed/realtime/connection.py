"""One authenticated connection on the event loop: it sends frames from a queue, and passes received ones to a handler.

A connection reads and writes when the kernel is ready, one portion per turn of the loop, so no connection starves
another. Frames queued in the same turn leave together, and one portion may hold many frames. The kernel takes bytes
only while fewer than TCP_NOTSENT_LOWAT (the plan's ``unsent_limit_bytes``) wait there unsent. Hence an urgent message
overtakes all queued frames. It waits at most for that many bytes, for one buffer of the kernel (64 KiB), and for the
batch that is being written. A batch takes frames until it has at least ``batch_bytes`` bytes.

For an orderly end, each side sends a CLOSE frame. If a connection ends otherwise, the peer is lost.

All of this happens on the event loop, except ``beat``: a separate thread sends heartbeats, so that peers do not take a
node with a busy event loop for lost. A lock protects the stream from both writing at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from testbed.messages import batch_bytes
from testbed.realtime.auth import Keys
from testbed.realtime.frame_codes import NO_CODE, frame_code
from testbed.realtime.frames import (
    CLOSE,
    HEARTBEAT,
    PIECE_BYTES,
    SMALL_BYTES,
    Arrival,
    BadFrame,
    FrameReader,
    frame_pieces,
    small_frame,
)
from testbed.realtime.send_queue import SendQueue
from testbed.realtime.sockets import TcpInfo
from testbed.realtime.stream import ByteStream
from testbed.realtime.tls import WOULD_BLOCK
from testbed.settings.run import Transport

READ_BUDGET_BYTES = WRITE_BUDGET_BYTES = 4 * PIECE_BYTES  # per turn of the event loop
_DELAY_KEPT_S = 1.0
_MAX_PIECES = 256  # of one sendmsg; the kernel's limit (IOV_MAX) is 1024


class Handler(Protocol):
    """Receives what happens on a connection."""

    def on_arrival(self, connection: Connection, arrival: Arrival) -> None:
        """Take a complete message."""

    def on_end(self, connection: Connection, cause: str | None) -> None:
        """Note that the connection is closed. ``cause`` is ``None`` after an orderly end, else the reason."""


class Connection:
    """See the module's docstring. ``peer``: name of the other end. ``purpose``: ``data``, ``aside`` or ``heartbeat``.

    ``began_at_s``, ``heard_at_s``: when the connection began and when it last received bytes, on the loop's clock.
    """

    def __init__(self, stream: ByteStream, peer: str, purpose: str, queue: SendQueue, handler: Handler) -> None:
        self.peer = peer
        self.purpose = purpose
        self.queue = queue
        self._stream = stream
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self.began_at_s = self.heard_at_s = self._loop.time()
        self.frames_received = 0
        self._delay_s = 0.0
        self._delay_at_s = -math.inf
        self._last_info: TcpInfo | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.RLock()  # protects the stream, and the bytes that are about to be written
        self._out: deque[bytes | memoryview] = deque()
        self._pieces: Iterator[memoryview] = iter(())
        self._sequence = 0
        self._reading = self._writing = self._polling = False
        self._frame_open = False  # whether a large frame has begun and may have more pieces
        self._close_sent = self._close_received = False

    @property
    def sending(self) -> bool:
        """Whether any bytes wait here to be written."""
        return self._writing

    def fileno(self) -> int:
        return self._stream.fileno()

    def least_delay_s(self) -> float:
        """Return half of the kernel's minimum round-trip time, in s, read at most once per second; 0 through memory."""
        now_s = self._loop.time()
        if now_s - self._delay_at_s > _DELAY_KEPT_S:
            info = self.tcp_info()
            self._delay_at_s = now_s
            self._delay_s = info.min_rtt_s / 2 if info else 0.0
        return self._delay_s

    def tcp_info(self) -> TcpInfo | None:
        """Return the kernel's data about the connection, the last ones if it is closed; ``None`` through memory."""
        return self._last_info if self.closed.done() else self._stream.tcp_info()

    def start(self, keys: Keys, transport: Transport, max_body_bytes: int) -> None:
        """Begin to read, and to write the frames that are queued already."""
        mac = NO_CODE if self._stream.private else transport.mac
        self._batch_bytes = batch_bytes(transport.unsent_limit_bytes)
        self._code = frame_code(mac, keys.outgoing)
        self._reader = FrameReader(frame_code(mac, keys.incoming), max_body_bytes)
        self.resume_reading()
        self.wake()

    # ---- reading ------------------------------------------------------------------------------------------------

    def resume_reading(self) -> None:
        if not self.closed.done():
            self._reading = True
            self._stream.on_readable(self._on_readable)

    def pause_reading(self) -> None:
        """Leave arriving bytes in the kernel, whose full buffer then slows the sender down."""
        self._reading = False
        self._stream.on_readable(None)

    def _on_readable(self) -> None:
        if self.closed.done() or not self._reading:
            return
        try:
            with self._lock:
                self._read()
        except WOULD_BLOCK:
            pass
        except (OSError, BadFrame) as error:
            self._end(str(error))

    def _read(self) -> None:
        budget = READ_BUDGET_BYTES
        while budget > 0 and not self.closed.done():
            buffer = self._reader.buffer()
            count = self._stream.recv_into(buffer)
            if count == 0:
                return self._end("closed the connection unexpectedly")
            self.heard_at_s = self._loop.time()
            budget -= count
            for frame in self._reader.received(count, self.heard_at_s):
                self._take(frame)
                if self.closed.done():
                    return None
            if count < len(buffer):
                return None  # there is no more now
        return None

    def _take(self, frame: Arrival | bytes) -> None:
        self.frames_received += 1
        if isinstance(frame, Arrival):
            self._handler.on_arrival(self, frame)
        elif frame == CLOSE:
            self._close_received = True
            self.finish()
            self._close_if_done()

    # ---- writing ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Write the queue at the end of this turn of the loop, together with frames that are queued until then."""
        if not self._writing and not self.closed.done():
            self._writing = True
            self._loop.call_soon(self._on_writable)

    def finish(self) -> None:
        """Send CLOSE after all queued frames. ``closed`` is set when the peer's CLOSE has come as well."""
        if not self._close_sent and not self.closed.done():
            self._close_sent = True
            self.queue.post(CLOSE, priority=-math.inf)
            self.wake()

    def _on_writable(self) -> None:
        if self.closed.done():
            return
        try:
            with self._lock:
                self._write()
        except WOULD_BLOCK:
            self._poll_writable(True)
        except OSError as error:
            self._end(str(error))

    def _write(self) -> None:
        budget = WRITE_BUDGET_BYTES
        while budget > 0:
            if not self._out:
                self._fill()
            if not self._out:
                break
            sent = self._stream.sendmsg(self._out)
            self._advance(sent)
            budget -= sent
        if self._out or self.queue or self._frame_open:
            return self._poll_writable(True)
        self._writing = False
        self._poll_writable(False)
        return self._close_if_done()

    def beat(self) -> None:
        """Send a heartbeat, from any thread. If the kernel does not take all bytes now, the event loop writes the rest.

        Send none if frames are queued: they are a sign of life, too.
        """
        with self._lock:
            if self.closed.done() or self._close_sent or self.queue:
                return
            self._out.extend(self._pieces)
            self._out.extend(frame_pieces(HEARTBEAT, (), self._sequence, self._code))
            self._sequence += 1
            try:
                while self._out:
                    self._advance(self._stream.sendmsg(self._out))
            except WOULD_BLOCK:
                self._loop.call_soon_threadsafe(self.wake)
            except OSError:
                pass  # the event loop finds out when it reads

    def _poll_writable(self, on: bool) -> None:
        """Write on whenever the kernel reports that it can take bytes, or stop doing so."""
        if on != self._polling:
            self._polling = on
            self._stream.on_writable(self._on_writable if on else None)

    def _fill(self) -> None:
        # Take about one piece at most, and no frame once the batch is long enough: bytes taken here are not overtaken.
        size = 0
        while size < PIECE_BYTES and len(self._out) < _MAX_PIECES:
            piece = next(self._pieces, None)
            if piece is not None:
                self._out.append(piece)
                size += len(piece)
            elif self.queue and size < self._batch_bytes:
                item = self.queue.pop()
                sequence, self._sequence = self._sequence, self._sequence + 1
                if item.body_bytes <= SMALL_BYTES:
                    frame = small_frame(item.header, item.parts, sequence, self._code)
                    self._out.append(frame)
                    size += len(frame)
                else:
                    self._pieces = frame_pieces(item.header, item.parts, sequence, self._code)
                    self._frame_open = True
            else:
                self._frame_open = False
                return

    def _advance(self, sent: int) -> None:
        while sent:
            piece = self._out.popleft()
            if sent < len(piece):
                self._out.appendleft(piece[sent:])
            sent -= min(sent, len(piece))

    # ---- the end ------------------------------------------------------------------------------------------------

    def _close_if_done(self) -> None:
        if self._close_received and self._close_sent and not self._out and not self.queue and not self._writing:
            self._end(None)

    def _end(self, cause: str | None) -> None:
        if not self.closed.done():
            self.close()
            self._handler.on_end(self, None if self._close_received else cause)

    def leave(self) -> None:
        """Close now: drop queued frames and wait for no answer. Send CLOSE first, unless a frame is half written."""
        with self._lock:
            if not self.closed.done() and not self._out and next(self._pieces, None) is None:
                self.queue.clear()
                self.finish()
                with contextlib.suppress(OSError):
                    self._write()
            self.close()

    def close(self) -> None:
        """Drop everything now, without telling the peer or the handler."""
        with self._lock:
            if not self.closed.done():
                self._last_info = self.tcp_info()
                self._stream.close()
                self.queue.clear()
                self.closed.set_result(None)
