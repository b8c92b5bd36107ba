"""The connection between the driver and an agent: authenticated messages, delivered in order.

An agent connects to the driver, names itself and sends a nonce; the driver answers with another. The key of the
connection is derived from both and from the key in the agent's ticket. Every message is MessagePack and carries its
HMAC-SHA256 over that key, its direction and its number, so that nothing can be forged, repeated or left out. With
``tls``, all of it is inside TLS 1.3 with the run's certificate.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from testbed.realtime.tls import WOULD_BLOCK, Tls

KEY_BYTES = 32
SEND_LIMIT_S = 30.0  # a peer that reads nothing for this long is considered lost
PIECE_BYTES = 1 << 18  # of a file, in one message
_MAGIC = b"TBA1"
_NONCE_BYTES, _CODE_BYTES, _READ_BYTES = 32, 32, 1 << 18
_MAX_MESSAGE_BYTES = 64 << 20
_MAX_FIRST_BYTES = 1 << 20  # of who may be a stranger
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")
_NAME = struct.Struct("!B")

Content = dict[str, Any]


class ControlLost(ConnectionError):
    """The other end is gone, or a message of it is not authentic."""


class ControlConnection:
    """One end. ``mine`` and ``theirs`` are the directions that the codes cover."""

    def __init__(self, sock: socket.socket, key: bytes, mine: bytes, theirs: bytes) -> None:
        self._sock, self._key, self._mine, self._theirs = sock, key, mine, theirs
        self._sent = self._received = 0
        self._data = bytearray()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def send(self, message: Content) -> None:
        """Send a message. Raise ``ControlLost`` if the other end is gone."""
        body = msgspec.msgpack.encode(message)
        code = self._code(self._mine, self._sent, body)
        self._sent += 1
        self._write(_LENGTH.pack(len(body)) + code + body)

    def receive(self) -> Iterator[Content]:
        """Yield the messages that have come. Raise ``ControlLost`` after the last."""
        lost = self._read()
        while (body := self._next()) is not None:
            yield body
        if lost:
            raise ControlLost("the connection has ended")

    def first(self, limit_s: float) -> Content:
        """Wait for the first message. Raise ``ControlLost`` if none comes in time, or it is not authentic.

        What comes with it is kept for ``receive``.
        """
        end_s = time.monotonic() + limit_s
        while (message := self._next(_MAX_FIRST_BYTES)) is None:
            try:
                data = self._sock.recv(_READ_BYTES)
            except WOULD_BLOCK as error:
                wants = select.POLLOUT if isinstance(error, ssl.SSLWantWriteError) else select.POLLIN
                if self._wait(wants, end_s):
                    continue
                raise ControlLost("no first message in time") from error
            if not data or time.monotonic() > end_s:
                raise ControlLost("no first message")
            self._data += data
        return message

    def _wait(self, wants: int, end_s: float) -> bool:
        """Wait until the socket is ready, at most until ``end_s``; return whether it is, or may be before that."""
        ready = select.poll()
        ready.register(self._sock, wants)
        return bool(ready.poll(max(0.0, end_s - time.monotonic()) * 1e3)) or time.monotonic() < end_s

    def _code(self, direction: bytes, number: int, body: bytes) -> bytes:
        return hmac.digest(self._key, direction + _NUMBER.pack(number) + body, "sha256")

    def _write(self, data: bytes) -> None:
        rest, end_s = memoryview(data), time.monotonic() + SEND_LIMIT_S
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
                end_s = time.monotonic() + SEND_LIMIT_S
            except WOULD_BLOCK as error:
                wants = select.POLLIN if isinstance(error, ssl.SSLWantReadError) else select.POLLOUT
                if not self._wait(wants, end_s):
                    raise ControlLost(f"it has taken nothing for {SEND_LIMIT_S:g} s") from error
            except OSError as error:
                raise ControlLost(str(error)) from error

    def _read(self) -> bool:
        """Read what is there; return whether the connection has ended."""
        while True:
            try:
                data = self._sock.recv(_READ_BYTES)
            except WOULD_BLOCK:
                return False
            except OSError:
                return True
            if not data:
                return True
            self._data += data

    def _next(self, limit_bytes: int = _MAX_MESSAGE_BYTES) -> Content | None:
        start = _LENGTH.size + _CODE_BYTES
        if len(self._data) < start:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if length > limit_bytes:
            raise ControlLost(f"a message of {length} bytes")
        if len(self._data) < start + length:
            return None
        code, body = bytes(self._data[_LENGTH.size : start]), bytes(self._data[start : start + length])
        if not hmac.compare_digest(code, self._code(self._theirs, self._received, body)):
            raise ControlLost("a message with a wrong code")
        self._received += 1
        del self._data[: start + length]
        content: Content = msgspec.msgpack.decode(body)
        return content


def connect(address: tuple[str, int], name: str, key: bytes, tls: Tls | None, limit_s: float) -> ControlConnection:
    """Return the agent's end of a new connection to the driver. Raise ``OSError``."""
    sock = socket.create_connection(address, timeout=limit_s)
    if tls is not None:
        sock = tls.client.wrap_socket(sock)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sock.sendall(_MAGIC + _NAME.pack(len(name.encode())) + name.encode() + nonce)
    theirs = exactly(sock, _NONCE_BYTES)
    return ControlConnection(sock, hmac.digest(key, nonce + theirs, "sha256"), b"agent", b"driver")


def accept(
    sock: socket.socket, keys: Mapping[str, bytes], tls: Tls | None, limit_s: float
) -> tuple[str, ControlConnection, Content]:
    """Return the name of the agent at a new connection, the driver's end, and the first message, which proves the name.

    keys  of the agents that are awaited, by name. Close the socket and raise ``OSError`` for others.
    """
    try:
        return _accepted(sock, keys, tls, limit_s)
    except BaseException:
        sock.close()
        raise


def _accepted(
    sock: socket.socket, keys: Mapping[str, bytes], tls: Tls | None, limit_s: float
) -> tuple[str, ControlConnection, Content]:
    sock.settimeout(limit_s)
    if tls is not None:
        sock = tls.server.wrap_socket(sock, server_side=True)
    if exactly(sock, len(_MAGIC)) != _MAGIC:
        raise ControlLost("no agent of this project")
    name = exactly(sock, _NAME.unpack(exactly(sock, 1))[0]).decode(errors="replace")
    nonce = exactly(sock, _NONCE_BYTES)
    key = keys.get(name)
    if key is None:
        raise ControlLost(f"no agent {name!r} is awaited")
    ours = secrets.token_bytes(_NONCE_BYTES)
    sock.sendall(ours)
    connection = ControlConnection(sock, hmac.digest(key, nonce + ours, "sha256"), b"driver", b"agent")
    return name, connection, connection.first(limit_s)


def exactly(sock: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes of a socket. Raise ``ControlLost`` if the connection ends before."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ControlLost("the other end has closed the connection")
        data += piece
    return data
