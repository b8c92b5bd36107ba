"""The byte stream below a connection: a socket, plain or with TLS, or shared memory (``shared_memory``)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from testbed.realtime.sockets import TcpInfo
from testbed.realtime.tls import WOULD_BLOCK, TlsSocket


class ByteStream(Protocol):
    """Bytes in both directions, without blocking: a call that would block raises one of ``WOULD_BLOCK``.

    private  whether the kernel keeps other users from reading or writing the stream; then frames need no
             authentication code
    """

    private: bool

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read at most ``len(buffer)`` bytes. Return their number; 0 when the peer has ended and all bytes are read.

        If the number is less than ``len(buffer)``, no more bytes are available now.
        """

    def sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        """Send as many of the first bytes of ``buffers`` as there is room for. Return their number."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""

    def tcp_info(self) -> TcpInfo | None:
        """Return the kernel's data about the connection; ``None`` for shared memory."""

    def on_readable(self, call: Callable[[], None] | None) -> None:
        """Call ``call`` once per turn of the event loop while there are bytes to read; ``None`` stops this."""

    def on_writable(self, call: Callable[[], None] | None) -> None:
        """Call ``call`` once per turn of the event loop while bytes can be written; ``None`` stops this."""

    def close(self) -> None:
        """End both directions."""


class SocketStream:
    """A connected, non-blocking socket."""

    private = False  # also with TLS, where an attacker could still cut off records

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._read: Callable[[], None] | None = None
        self.sendmsg = sock.sendmsg
        self.fileno = sock.fileno
        self.recv_into = partial(_read_records, sock) if isinstance(sock, TlsSocket) else sock.recv_into

    def tcp_info(self) -> TcpInfo | None:
        return TcpInfo.of(self._sock)

    def on_readable(self, call: Callable[[], None] | None) -> None:
        self._read = call
        if call is None:
            self._loop.remove_reader(self._sock)
        elif isinstance(self._sock, TlsSocket):
            self._loop.add_reader(self._sock, self._on_records, self._sock)
            self._again(self._sock)
        else:
            self._loop.add_reader(self._sock, call)

    def _on_records(self, sock: TlsSocket) -> None:
        if self._read is not None:
            self._read()
            self._again(sock)

    def _again(self, sock: TlsSocket) -> None:
        # TLS decrypts whole records. The rest of a record is already in the process, so polling the socket misses it.
        if self._read is not None and sock.pending():
            self._loop.call_soon(self._on_records, sock)

    def on_writable(self, call: Callable[[], None] | None) -> None:
        if call is None:
            self._loop.remove_writer(self._sock)
        else:
            self._loop.add_writer(self._sock, call)

    def close(self) -> None:
        self.on_readable(None)
        self.on_writable(None)
        self._sock.close()


def _read_records(sock: TlsSocket, buffer: memoryview) -> int:
    """Fill ``buffer`` from as many TLS records as are available, as each read of ``sock`` returns one at most."""
    count = 0
    while count < len(buffer):
        try:
            more = sock.recv_into(buffer[count:])
        except WOULD_BLOCK:
            if count:
                break
            raise
        if not more:
            break
        count += more
    return count
