"""Connections through shared memory between two nodes of one host: where no emulated link lies between them, and for
messages that are sent aside (``testbed.world.World.send_aside``).

The connection keeps its socket, which carries the handshake and then an offer of the memory, authenticated by the
connection's keys. The initiator makes an anonymous file (memfd) with one ring of bytes per direction, and two pipes.
The acceptor opens all three in ``/proc/PID/fd``, which works across network namespaces, but only for the same user.
File and pipes have no names, so nothing stays behind when processes are killed. The socket shows when the peer has
ended.

A writer copies bytes into its ring. If the ring was empty before, the reader may sleep, and the writer rings its bell
(a byte in a pipe). If the ring is full, the writer marks that it waits, and the reader rings when a quarter is free.
Frames are those of a socket, but without an authentication code: that field is zero. A process that can write to
this memory can also read the keys in the memory of both processes, so a code would stop no attacker, and it would take
as long as a copy.

Each counter of a ring has one writer, which writes it after the bytes that it counts. On x86 processors, other
processors see both writes in this order; on other architectures, nodes use their sockets. Each side publishes its own
counters before it reads those of the other side (``_publish``), so it cannot happen that both wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hmac
import mmap
import os
import platform
import socket
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.ids import data_center_of
from testbed.plan.model import Plan
from testbed.realtime.auth import Keys, read_exactly
from testbed.realtime.sockets import TcpInfo
from testbed.realtime.stream import ByteStream, SocketStream
from testbed.realtime.tls import send_all

RING_BYTES = 1 << 20  # per direction: fits into the caches, and an urgent frame waits for at most so many bytes
_COUNTERS_BYTES = 4096  # at the start of the file
_FILE_BYTES = _COUNTERS_BYTES + 2 * RING_BYTES
# counters, of 8 bytes each, on cache lines of their own
_WRITTEN = 0
_READ = 8
_WAITS = 16
_PER_RING = 24
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_RETRY_S = 0.01  # a writer looks at a full ring again after this time, even if the bell does not ring

_OFFER = struct.Struct("!4I")  # a process, and its descriptors of the file and of the acceptor's ends of both bells
_CODE_BYTES = 32
_TAKEN = b"\1"
_REFUSED = b"\0"


def has_shared_memory(plan: Plan) -> bool:
    """Return whether two nodes of one machine may share memory at all."""
    return plan.transport.shared_memory and not plan.transport.tls and platform.machine() == "x86_64"


def shares_memory(plan: Plan, one: str, other: str) -> bool:
    """Return whether data connections between two nodes go through shared memory; the same answer at both ends."""
    site = data_center_of(one)
    if site != data_center_of(other) or not has_shared_memory(plan):
        return False
    if plan.is_emulated:
        return plan.site(site).is_unshaped
    return plan.facilities.is_unshaped


_lock = threading.Lock()


def _publish() -> None:
    """Make this thread's writes visible to other processors: taking a lock is a full memory barrier."""
    with _lock:
        pass


@dataclass(slots=True)
class _Bell:
    """Wakes the other process. ``read``: the pipe end that wakes this side; ``ring``: the end that wakes the peer."""

    read: int
    ring: int

    def wake_peer(self) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # the pipe is full, or the peer has ended
            os.write(self.ring, b"\0")

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.read, 4096)

    def close(self) -> None:
        os.close(self.read)
        os.close(self.ring)


class _Ring:
    """Bytes from one process to another. Both counters only grow; their difference is the bytes in the ring."""

    def __init__(self, memory: memoryview, number: int) -> None:
        self.counters = memory[:_COUNTERS_BYTES].cast("Q")[number * _PER_RING : (number + 1) * _PER_RING]
        start = _COUNTERS_BYTES + number * RING_BYTES
        self._bytes = memory[start : start + RING_BYTES]

    @property
    def filled(self) -> int:
        """Bytes to read, at most the ring's size: a peer with wrong counters can spoil only its own connection."""
        return min(self.counters[_WRITTEN] - self.counters[_READ], RING_BYTES)

    def write(self, buffers: Sequence[bytes | memoryview]) -> tuple[int, bool]:
        """Copy as many bytes as there is room for. Return their number, and whether the reader may sleep."""
        written = self.counters[_WRITTEN]
        room = RING_BYTES - self.filled
        start = written
        for buffer in buffers:
            data = buffer[:room]
            written, room = self._copied(written, data), room - len(data)
            if not room:
                break
        self.counters[_WRITTEN] = written
        _publish()
        return written - start, self.counters[_READ] == start

    def _copied(self, written: int, data: bytes | memoryview) -> int:
        at = written % RING_BYTES
        first = min(len(data), RING_BYTES - at)
        self._bytes[at : at + first] = data[:first]
        self._bytes[: len(data) - first] = data[first:]
        return written + len(data)

    def read_into(self, buffer: memoryview) -> int:
        """Copy the available bytes into ``buffer``, as far as they fit; return their number."""
        read = self.counters[_READ]
        size = min(len(buffer), self.filled)
        at = read % RING_BYTES
        first = min(size, RING_BYTES - at)
        buffer[:first] = self._bytes[at : at + first]
        buffer[first:size] = self._bytes[: size - first]
        self.counters[_READ] = read + size
        _publish()
        return size

    def release(self) -> None:
        self.counters.release()
        self._bytes.release()


class SharedStream:
    """A ``ByteStream`` over two rings; ``sock`` shows when the peer has ended."""

    private = True

    def __init__(self, sock: socket.socket, memory: mmap.mmap, bell: _Bell, incoming: int) -> None:
        self._sock = sock
        self._memory = memory
        self._bell = bell
        self._loop = asyncio.get_running_loop()
        self._view = memoryview(memory)
        self._in = _Ring(self._view, incoming)
        self._out = _Ring(self._view, 1 - incoming)
        self._read: Callable[[], None] | None = None
        self._write: Callable[[], None] | None = None
        self._scheduled = self._ended = self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self.fileno = sock.fileno
        self._loop.add_reader(bell.read, self._on_bell)
        self._loop.add_reader(sock, self._on_socket)

    def recv_into(self, buffer: memoryview, /) -> int:
        count = self._in.read_into(buffer)
        if count:
            if self._in.counters[_WAITS] and self._in.filled <= RING_BYTES * 3 // 4:
                self._in.counters[_WAITS] = False
                self._bell.wake_peer()
        elif not self._ended:
            raise BlockingIOError
        return count

    def sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        count, reader_sleeps = self._out.write(buffers)
        if not count:
            raise BlockingIOError
        if reader_sleeps:
            self._bell.wake_peer()
        return count

    def tcp_info(self) -> TcpInfo | None:
        return None

    def on_readable(self, call: Callable[[], None] | None) -> None:
        self._read = call
        self._schedule()

    def on_writable(self, call: Callable[[], None] | None) -> None:
        self._write = call
        self._schedule()

    def _on_bell(self) -> None:
        self._bell.silence()
        self._turn()

    def _on_socket(self) -> None:
        """Note that the peer has ended: peers send nothing over the socket after the handshake and the offer."""
        self._loop.remove_reader(self._sock)
        self._ended = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._on_schedule)

    def _on_schedule(self) -> None:
        self._scheduled = False
        self._turn()

    def _turn(self) -> None:
        """Read and write one portion; schedule another turn while there is more to read or write."""
        if not self._closed and self._read is not None and (self._in.filled or self._ended):
            self._read()
        if not self._closed and self._write is not None and self._out.filled < RING_BYTES:
            self._write()
        if self._closed:
            return
        if self._write is not None and self._out.filled == RING_BYTES:
            self._out.counters[_WAITS] = True
            _publish()
            if self._retry is None:
                self._retry = self._loop.call_later(_RETRY_S, self._on_retry)
        if (self._read is not None and (self._in.filled or self._ended)) or (
            self._write is not None and self._out.filled < RING_BYTES
        ):
            self._schedule()

    def _on_retry(self) -> None:
        self._retry = None
        self._turn()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._read = self._write = None
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._bell.read)
        self._loop.remove_reader(self._sock)
        self._bell.close()
        self._in.release()
        self._out.release()
        self._view.release()
        self._memory.close()
        self._sock.close()


async def offer(sock: socket.socket, keys: Keys) -> ByteStream:
    """As initiator, make memory and offer it over ``sock``. Return a stream: over the socket if the peer refuses."""
    with contextlib.ExitStack() as opened:
        file = os.memfd_create("testbed-connection", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        opened.callback(os.close, file)
        os.ftruncate(file, _FILE_BYTES)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        theirs = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        ours = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for end in (*theirs, *ours):
            opened.callback(os.close, end)
        data = _OFFER.pack(os.getpid(), file, theirs[0], ours[1])
        await send_all(sock, data + _code(keys.outgoing, data))
        answer = await _authentic(sock, 1, keys.incoming)
        if answer != _TAKEN:
            return SocketStream(sock)
        memory = mmap.mmap(file, _FILE_BYTES)
        bell = _Bell(os.dup(ours[0]), os.dup(theirs[1]))
    return SharedStream(sock, memory, bell, incoming=1)


async def take(sock: socket.socket, keys: Keys) -> ByteStream:
    """As acceptor, take the memory that the peer offers over ``sock``; if that fails, return a stream over ``sock``."""
    process, file, read, ring = _OFFER.unpack(await _authentic(sock, _OFFER.size, keys.incoming))
    try:
        with contextlib.ExitStack() as opened:
            memory = opened.enter_context(contextlib.closing(_mapped(_path(process, file))))
            ends = [
                os.open(_path(process, end), how | os.O_NONBLOCK | os.O_CLOEXEC)
                for end, how in ((read, os.O_RDONLY), (ring, os.O_WRONLY))
            ]
            opened.pop_all()
    except OSError:
        await send_all(sock, _REFUSED + _code(keys.outgoing, _REFUSED))
        return SocketStream(sock)
    stream = SharedStream(sock, memory, _Bell(*ends), incoming=0)
    try:
        await send_all(sock, _TAKEN + _code(keys.outgoing, _TAKEN))
    except BaseException:
        stream.close()
        raise
    return stream


def _path(process: int, descriptor: int) -> str:
    return f"/proc/{process}/fd/{descriptor}"


def _mapped(path: str) -> mmap.mmap:
    """Map a file. Raise ``OSError`` unless it has the right, sealed size; otherwise reads could end in SIGBUS."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size != _FILE_BYTES:
            raise OSError(f"{path} is not memory of a connection")
        if fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise OSError(f"{path} is not sealed")
        return mmap.mmap(file, _FILE_BYTES)
    finally:
        os.close(file)


async def _authentic(sock: socket.socket, size: int, key: bytes) -> bytes:
    """Read ``size`` bytes and their authentication code. Raise ``ConnectionError`` if the code is wrong."""
    data = await read_exactly(sock, size + _CODE_BYTES)
    if not hmac.compare_digest(data[size:], _code(key, data[:size])):
        raise ConnectionError("an offer of shared memory has a wrong code")
    return data[:size]


def _code(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"shared memory\0" + data, "sha256")
