"""TLS below our own frames, for networks where others listen (``transport.tls``).

A run makes one key and one certificate for itself, which last as long as it does, and every node accepts that
certificate alone, as a server and as a client (mutual TLS 1.3). So TLS proves "one of this run"; which one it is, the
handshake above it proves (``testbed.realtime.auth``). The key is on disk only while it is made, in a directory that
nobody else may enter; nodes have it by the memory that a fork shares.

Non-blocking throughout. A TLS socket may hold decrypted bytes that no poll of the descriptor shows: see ``pending``.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from testbed.errors import CapabilityError
from testbed.runtime_directory import runtime_directory

T = TypeVar("T")
MAKING_LIMIT_S = 30.0
RECORD_BYTES = 16_384  # the most that a record holds; small pieces are joined up to here


@dataclass(frozen=True, slots=True)
class Tls:
    """Both ends' settings, with the run's key in them."""

    server: ssl.SSLContext = field(repr=False)
    client: ssl.SSLContext = field(repr=False)


def new_tls() -> Tls:
    """A fresh key and certificate, for one run.

    ``CapabilityError`` where no ``openssl`` can make them, or there is no safe directory for it to work in.
    """
    tool = shutil.which("openssl")
    if tool is None:
        raise CapabilityError(
            "transport.tls: the command `openssl` makes a run's certificate, and is not here; "
            "cure: `apt-get install openssl`, or write tls: false"
        )
    with tempfile.TemporaryDirectory(prefix="testbed-tls-", dir=runtime_directory()) as name:
        key, certificate = Path(name) / "key.pem", Path(name) / "certificate.pem"
        _make(tool, key, certificate)
        return Tls(
            _context(ssl.PROTOCOL_TLS_SERVER, key, certificate), _context(ssl.PROTOCOL_TLS_CLIENT, key, certificate)
        )


def _make(tool: str, key: Path, certificate: Path) -> None:
    command = [
        tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256",
        "-days", "30", "-subj", "/CN=a testbed run", "-keyout", str(key), "-out", str(certificate),
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=MAKING_LIMIT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "stderr", b"") or b""
        reason = words.decode(errors="replace").strip().splitlines() or [str(error)]
        raise CapabilityError(f"transport.tls: `openssl req` made no certificate: {reason[-1]}") from error


def _context(protocol: int, key: Path, certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is the run's, not a host's
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nobody comes back to an earlier session
    return context


async def shake_hands(sock: socket.socket, context: ssl.SSLContext, server_side: bool) -> TlsSocket:
    """TLS on a connected, non-blocking socket. ``OSError`` (``ssl.SSLError``) if the peer is none of this run.

    The caller bounds the time, and closes ``sock`` if this fails.
    """
    wrapped = context.wrap_socket(sock, server_side=server_side, do_handshake_on_connect=False)
    try:
        await _retried(wrapped, wrapped.do_handshake)
    except BaseException:
        wrapped.close()
        raise
    return TlsSocket(wrapped)


class TlsSocket:
    """What our connections use of a socket, over TLS. ``BlockingIOError`` where a plain one would raise it."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._refused: bytes | memoryview = b""  # what TLS wants to be given again, unchanged

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def pending(self) -> int:
        """Bytes that are here already, whatever the kernel says."""
        return self._sock.pending()

    def recv_into(self, buffer: memoryview) -> int:
        try:
            return self._sock.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except ssl.SSLEOFError:
            return 0

    def sendmsg(self, pieces: Sequence[memoryview]) -> int:
        data = self._refused or _joined(pieces)
        try:
            sent = self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._refused = data
            raise BlockingIOError from error
        self._refused = b""
        return sent

    async def send_all(self, data: bytes) -> None:
        """During the handshake above; afterwards connections write as they can."""
        rest = memoryview(data)
        while rest:
            sent = await _retried(self._sock, partial(self._sock.send, rest))
            rest = rest[sent:]

    async def receive(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        return await _retried(self._sock, partial(self._sock.recv, size))


def _joined(pieces: Sequence[memoryview]) -> bytes | memoryview:
    """The first piece, if it fills a record; else so many as fit into one, which costs less than a record each."""
    if len(pieces) == 1 or len(pieces[0]) >= RECORD_BYTES:
        return pieces[0]
    some, size = [], 0
    for piece in pieces:
        some.append(piece[: RECORD_BYTES - size])
        size += len(some[-1])
        if size == RECORD_BYTES:
            break
    return b"".join(some)


async def _retried(sock: ssl.SSLSocket, step: Callable[[], T]) -> T:
    """``step``, again whenever the descriptor is ready for what TLS wants."""
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            await _ready(sock.fileno(), write=False)
        except ssl.SSLWantWriteError:
            await _ready(sock.fileno(), write=True)


async def _ready(descriptor: int, write: bool) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(descriptor, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        remove(descriptor)


Stream = socket.socket | TlsSocket


async def send_all(sock: Stream, data: bytes) -> None:
    """All of ``data``, over whichever."""
    if isinstance(sock, TlsSocket):
        await sock.send_all(data)
    else:
        await asyncio.get_running_loop().sock_sendall(sock, data)


async def receive(sock: Stream, size: int) -> bytes:
    """At most ``size`` bytes; none at the end."""
    if isinstance(sock, TlsSocket):
        return await sock.receive(size)
    return await asyncio.get_running_loop().sock_recv(sock, size)
