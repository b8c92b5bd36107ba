"""TLS below the frames, for networks on which others can listen (``transport.tls``).

A run makes one key and one certificate, valid as long as it lasts. Every node accepts that certificate alone, as server
and as client (mutual TLS 1.3). TLS thus proves "a node of this run"; which node it is, the handshake above it proves
(``testbed.realtime.auth``). The key is never on disk; nodes inherit it in memory when they are forked.

Sockets stay non-blocking and in our hands, without asyncio's transports: a transport would buffer what it cannot send,
behind which an urgent frame would have to wait.
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
# A certificate is valid as long as its key is known, whatever the clocks of machines say (the end: RFC 5280, 4.1.2.5).
_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
RECORD_BYTES = 16_384  # the most that a TLS record holds (RFC 8446, section 5.1)
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a non-blocking socket raises, plain or under TLS, when it is not ready. To be caught before ``OSError``."""


class TlsSocket(ssl.SSLSocket):
    """A TLS socket with ``sendmsg``. May hold decrypted bytes that no poll of the descriptor shows: see ``pending``."""

    _refused: bytes | memoryview = b""  # OpenSSL demands that what it could not send is offered again unchanged

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]  # it refuses all arguments
        """Send the first buffers, as far as one record holds them; returns the number of bytes."""
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
    """Settings of both ends, with the run's key in them."""

    server: ssl.SSLContext = field(repr=False)
    client: ssl.SSLContext = field(repr=False)


def new_tls() -> Tls:
    """Settings with a fresh key and certificate."""
    return tls_of(new_pem())


def tls_of(pem: str) -> Tls:
    """Settings with the key and the certificate of a run, in PEM."""
    memory = os.memfd_create("run.pem")  # OpenSSL loads a key from a file only
    try:
        os.write(memory, pem.encode())
        path = f"/proc/self/fd/{memory}"
        return Tls(_context(ssl.PROTOCOL_TLS_SERVER, path), _context(ssl.PROTOCOL_TLS_CLIENT, path))
    finally:
        os.close(memory)


def new_pem() -> str:
    """A fresh key and certificate for one run, in PEM: what its machines share."""
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
    """TLS on a connected, non-blocking socket; without ``tls``, ``sock`` itself. If this fails, ``sock`` is closed.

    Raises:
        OSError: The peer is no node of this run (``ssl.SSLError``), or the connection failed.
        TimeoutError: Not within ``limit_s`` seconds.
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
    """At most ``size`` bytes, with or without TLS; none when the peer has closed its end."""
    return await _retry(sock, partial(sock.recv, size))


def _joined(pieces: Sequence[bytes | memoryview]) -> bytes | memoryview:
    """The first piece if it fills a record; else as many as fit into one, as a record costs more than a copy."""
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
    """The result of ``step``, called again whenever the descriptor is ready for what it lacked.

    Under TLS a read may have to write and the other way round; a plain socket waits for what ``write`` says.
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
