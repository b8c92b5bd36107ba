"""TLS below the frames, for networks on which others can listen (``transport.tls``).

A run makes one key and one certificate. Every node accepts only that certificate, as server and as client (mutual
TLS 1.3). TLS thus proves that the peer is a node of this run; the handshake above TLS proves which node it is
(``testbed.realtime.auth``). The key is never on disk; nodes inherit it in memory when they are forked.

Sockets stay non-blocking and do not use asyncio's transports: a transport buffers bytes that it cannot send yet, and an
urgent frame would have to wait behind them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

T = TypeVar("T")
# A certificate never expires, whatever the clocks of machines say (for the end, see RFC 5280, section 4.1.2.5).
_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
RECORD_BYTES = 16_384  # the most that a TLS record holds (RFC 8446, section 5.1)
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""Exceptions of a non-blocking socket, plain or with TLS, that is not ready. Catch them before ``OSError``."""


class TlsSocket(ssl.SSLSocket):
    """A TLS socket with ``sendmsg``. Polling the descriptor misses bytes already decrypted: see ``pending``."""

    _refused: bytes | memoryview = b""  # bytes that could not be sent; OpenSSL requires the next call to repeat them

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]  # it refuses all arguments
        """Send the first bytes of the buffers, at most one record; return the number of bytes sent."""
        data = self._refused or _joined(list(buffers))
        try:
            sent = self.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._refused = data
            raise
        self._refused = b""
        return sent


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of both ends, which contain the run's key."""

    server: ssl.SSLContext = field(repr=False)
    client: ssl.SSLContext = field(repr=False)


def new_tls() -> Tls:
    """Return settings with a fresh key and certificate."""
    return tls_of(new_pem())


def tls_of(pem: str) -> Tls:
    """Return settings with the key and the certificate of a run, given in PEM."""
    memory = os.memfd_create("run.pem")  # OpenSSL loads a key from a file only
    try:
        os.write(memory, pem.encode())
        path = f"/proc/self/fd/{memory}"
        return Tls(_context(ssl.PROTOCOL_TLS_SERVER, path), _context(ssl.PROTOCOL_TLS_CLIENT, path))
    finally:
        os.close(memory)


def new_pem() -> str:
    """Return a fresh key and certificate for one run, in PEM. All machines of the run share it."""
    from cryptography import x509

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string("CN=a testbed run")
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(_BEGIN).not_valid_after(_END)
    certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    parts = (
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate.sign(key, SHA256()).public_bytes(Encoding.PEM),
    )
    return b"".join(parts).decode()


def _context(protocol: int, pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is the run's, not a host's
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pem)
    context.load_verify_locations(pem)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # no session is ever resumed
    return context


async def start_tls(sock: socket.socket, tls: Tls | None, limit_s: float, *, server_side: bool) -> socket.socket:
    """Start TLS on a connected, non-blocking socket and return the TLS socket; without ``tls``, return ``sock`` itself.

    Closes the socket if TLS cannot be started.

    Raises:
        OSError: The peer is not a node of this run (``ssl.SSLError``), or the connection failed.
        TimeoutError: The handshake took more than ``limit_s`` seconds.
    """
    if tls is None:
        return sock
    context = tls.server if server_side else tls.client
    wrapped = context.wrap_socket(sock, server_side=server_side, do_handshake_on_connect=False)
    try:
        async with asyncio.timeout(limit_s):
            await _retry(wrapped, wrapped.do_handshake)
    except BaseException:
        wrapped.close()
        raise
    return wrapped


async def send_all(sock: socket.socket, data: bytes) -> None:
    """Send all of ``data``, with or without TLS."""
    rest = memoryview(data)
    while rest:
        rest = rest[await _retry(sock, partial(sock.send, rest), write=True) :]


async def receive(sock: socket.socket, size: int) -> bytes:
    """Receive at most ``size`` bytes, with or without TLS; none when the peer has closed its end."""
    return await _retry(sock, partial(sock.recv, size))


def _joined(pieces: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """Return the first piece if it fills a record. Else join pieces to fill one, as a copy costs less than a record."""
    if len(pieces) == 1 or len(pieces[0]) >= RECORD_BYTES:
        return pieces[0]
    some = []
    size = 0
    for piece in pieces:
        some.append(piece[: RECORD_BYTES - size])
        size += len(some[-1])
        if size == RECORD_BYTES:
            break
    return b"".join(some)


async def _retry(sock: socket.socket, step: Callable[[], T], write: bool = False) -> T:
    """Call ``step`` until it no longer blocks, each time waiting until the descriptor is ready; return its result.

    With TLS, reading may require writing and vice versa. A plain socket waits until it is writable if ``write``, else
    until it is readable.
    """
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            await _ready(sock.fileno(), write=False)
        except ssl.SSLWantWriteError:
            await _ready(sock.fileno(), write=True)
        except BlockingIOError:
            await _ready(sock.fileno(), write)


async def _ready(descriptor: int, write: bool) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(descriptor, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        remove(descriptor)
