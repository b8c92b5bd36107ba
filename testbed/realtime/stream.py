"""What a connection reads from and writes to: a socket, plain or under TLS, or memory (``shared_memory``)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from testbed.realtime.sockets import TcpInfo
from testbed.realtime.tls import WOULD_BLOCK, TlsSocket


class ByteStream(Protocol):
    """Bytes in both directions, without blocking: what is not ready raises ``WOULD_BLOCK``.

    private  whether the kernel keeps all others from reading or writing it: frames then need no authentication code
    """

    private: bool

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read at most ``len(buffer)`` bytes. Return their number; 0 when the peer has ended and all is read.

        Fewer than ``len(buffer)`` are all that there are at this time.
        """

    def sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        """Take the first bytes of ``buffers``, as many as there is room for. Return their number."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""

    def tcp_info(self) -> TcpInfo | None:
        """Return what the kernel knows of the connection; ``None`` where there is no network."""

    def on_readable(self, call: Callable[[], None] | None) -> None:
        """Call this in turns of the event loop while there are bytes to be read; ``None``: no more."""

    def on_writable(self, call: Callable[[], None] | None) -> None:
        """Call this in turns of the event loop while bytes can be written; ``None``: no more."""

    def close(self) -> None:
        """End both directions."""


class SocketStream:
    """A connected, non-blocking socket."""

    private = False  # under TLS neither: records could still be cut off

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
        # TLS decrypts whole records: bytes that were not taken are here already, and no poll of the socket shows them.
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
    """Fill ``buffer`` as far as there are records: a read of ``sock`` gives one at most."""
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
