"""Connections between two nodes of one host through shared memory: where no emulated link lies between them, and for
what is sent aside (``testbed.world.World.send_aside``).

The socket of the connection stays. Over it go the handshake and, authenticated by the connection's keys, the place of
the memory: the initiator makes an anonymous file (memfd) with one ring of bytes per direction and two pipes, and the
acceptor opens all three in ``/proc/PID/fd``: that works across network namespaces, but only for the same user. Nothing
has a name, so nothing stays behind when processes are killed. The socket shows when the peer has ended.

A writer copies bytes into its ring. If the reader had taken all that was there before, it may sleep, and the writer
rings its bell (a byte in a pipe). A writer that finds its ring full marks that it waits; the reader then rings when a
quarter is free. Frames are those of a socket, but no authentication code is computed: its field is zero. A process that
can write to this memory can also read the keys in the memory of both processes, so a code would keep no attacker out,
and it would take as long as a copy. The offer of the memory is authenticated.

Counters of a ring are written by one side each, after the bytes that they speak of; that other processors see both in
that order is a property of x86 processors, so on others nodes stay with their sockets. Each side publishes what it has
done before it looks at what the other has done (``_publish``), so never do both take the other for awake.
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

RING_BYTES = 1 << 20  # of one direction: both processors' caches hold it, and an urgent frame waits for no more
_COUNTERS_BYTES = 4096  # at the start of the file
_FILE_BYTES = _COUNTERS_BYTES + 2 * RING_BYTES
# counters, of 8 bytes each, on cache lines of their own
_WRITTEN = 0
_READ = 8
_WAITS = 16
_PER_RING = 24
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_RETRY_S = 0.01  # a full ring is looked at again, whatever its reader says

_OFFER = struct.Struct("!4I")  # a process, and its descriptors of the file and of the acceptor's ends of both bells
_CODE_BYTES = 32
_TAKEN = b"\1"
_REFUSED = b"\0"


def has_shared_memory(plan: Plan) -> bool:
    """Return whether two nodes of one machine may share memory at all."""
    return plan.transport.shared_memory and not plan.transport.tls and platform.machine() == "x86_64"


def shares_memory(plan: Plan, one: str, other: str) -> bool:
    """Return whether connections between two nodes go through shared memory: both ends ask, and get one answer."""
    site = data_center_of(one)
    if site != data_center_of(other) or not has_shared_memory(plan):
        return False
    if plan.is_emulated:
        return plan.site(site).is_unshaped
    return plan.facilities.is_unshaped


_lock = threading.Lock()


def _publish() -> None:
    """Return when other processors see all that this thread has written: taking a lock is a full memory barrier."""
    with _lock:
        pass


@dataclass(slots=True)
class _Bell:
    """Wakes the other process. ``read``: this side's end; ``ring``: the end that wakes the peer."""

    read: int
    ring: int

    def wake_peer(self) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # it has not listened for long, or has ended
            os.write(self.ring, b"\0")

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.read, 4096)

    def close(self) -> None:
        os.close(self.read)
        os.close(self.ring)


class _Ring:
    """Bytes from one process to another. Both counters only grow; their difference is what lies in the ring."""

    def __init__(self, memory: memoryview, number: int) -> None:
        self.counters = memory[:_COUNTERS_BYTES].cast("Q")[number * _PER_RING : (number + 1) * _PER_RING]
        start = _COUNTERS_BYTES + number * RING_BYTES
        self._bytes = memory[start : start + RING_BYTES]

    @property
    def filled(self) -> int:
        """Bytes to be read. A peer that writes nonsense here can spoil its own connection, and no memory."""
        return min(self.counters[_WRITTEN] - self.counters[_READ], RING_BYTES)

    def write(self, buffers: Sequence[bytes | memoryview]) -> tuple[int, bool]:
        """Copy as much as there is room for. Return its size, and whether the reader may sleep."""
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
        """Copy as much as there is."""
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
        """The peer has ended: nothing else is ever sent over the socket."""
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
        """One portion in each direction; come again while there is more of either to do."""
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
    """As initiator of ``sock``, make memory and offer it. Return the stream: over the socket, if the peer refuses."""
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
    """As acceptor of ``sock``, take the memory that the peer offers; the stream is over the socket if that fails."""
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
    """Map a file of the right size whose size is sealed: else reading could end in SIGBUS."""
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
    """Read ``size`` bytes and their code. Raise ``ConnectionError`` if the code is wrong."""
    data = await read_exactly(sock, size + _CODE_BYTES)
    if not hmac.compare_digest(data[size:], _code(key, data[:size])):
        raise ConnectionError("an offer of shared memory has a wrong code")
    return data[:size]


def _code(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"shared memory\0" + data, "sha256")
