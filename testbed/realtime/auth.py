"""The handshake of a new connection: each end proves that it knows the run's secret, before anything else is read.

    initiator → acceptor   magic, protocol, length, hello (run, both names, purpose, nonce, process)
    acceptor  → initiator  result, protocol, nonce, proof
    initiator → acceptor   proof
    acceptor  → initiator  result

A proof is HMAC-SHA256, keyed by the secret, over the transcript (all bytes of hello and nonces so far) and the role of
the prover. Both nonces are fresh and the roles differ, so an attacker cannot replay a proof or send it back to its
author. The keys of the connection's two directions are derived from the final transcript in the same way. The
transcript contains the run's identity, so a process left over from another run is rejected like any stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from testbed.errors import RunFailed
from testbed.realtime.tls import Tls, new_tls, receive, send_all
from testbed.settings.run import Timeouts

# purposes of a connection
DATA = "data"
ASIDE = "aside"
BEAT = "heartbeat"
PROTOCOL = 4
MAX_HELLO_BYTES = 1024
SECRET_BYTES = 32
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_LEAST_LIMIT_S = 2.0
_ATTEMPTS = 4  # handshakes of full length that fit into a rendezvous

_MAGIC = b"TBH1"
_START = struct.Struct("!4sHH")  # magic, protocol, length of the hello
_ANSWER = struct.Struct(f"!BH{_NONCE_BYTES}s{_PROOF_BYTES}s")  # result, protocol, nonce, proof


class HandshakeResult(IntEnum):
    """The acceptor's answer to the initiator."""

    ACCEPTED = 0
    WRONG_SECRET = 1
    WRONG_PROTOCOL = 2
    DUPLICATE = 3
    UNKNOWN_NODE = 4
    TOO_LATE = 5


_TEXTS = {
    HandshakeResult.WRONG_SECRET: "wrong secret or wrong run",
    HandshakeResult.WRONG_PROTOCOL: "version skew",
    HandshakeResult.DUPLICATE: "duplicate registration: a node of that name is connected already",
    HandshakeResult.UNKNOWN_NODE: "no such node, or not the node that was to be reached",
    HandshakeResult.TOO_LATE: "the run has ended without this node",
}


class HandshakeRefused(RunFailed):
    """The handshake failed, and a retry would fail again."""

    def __init__(self, result: HandshakeResult, detail: str = "") -> None:
        self.result = result
        super().__init__(_TEXTS[result] + (f": {detail}" if detail else ""))


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the nodes of one run share to authenticate each other. ``repr`` omits the secret, so no log shows it."""

    run_id: str
    secret: bytes = field(repr=False)
    tls: Tls | None = field(default=None, repr=False)


def new_credentials(tls: bool = False) -> Credentials:
    """Return fresh credentials for one run. Forked nodes inherit them in memory; they are never written to a file."""
    return Credentials(secrets.token_hex(8), secrets.token_bytes(SECRET_BYTES), new_tls() if tls else None)


def handshake_limit_s(timeouts: Timeouts, load: float = 0.0) -> float:
    """Return how long one handshake (of TLS, or of this module) may take at either end, in s.

    On a busy host a node may get no processor for seconds. So the limit is a quarter of the plan's rendezvous deadline,
    at least 2 s, times ``load`` (runnable processes per core) if that is above 1, up to the whole deadline. Strangers
    cannot block the node's port for that long, see ``testbed.realtime.connecting``.
    """
    usual_s = max(_LEAST_LIMIT_S, timeouts.rendezvous_s / _ATTEMPTS)
    return max(usual_s, min(timeouts.rendezvous_s, usual_s * load))


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the frames' authentication codes, one for each direction as seen from this end."""

    outgoing: bytes = field(repr=False)
    incoming: bytes = field(repr=False)


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who connects to whom, and what for (``data``, ``aside`` or ``heartbeat``).

    ``process`` identifies the initiator's process; a node that has started again has a new one.
    """

    run_id: str
    initiator: str
    target: str
    purpose: str
    nonce: bytes
    process: bytes


Authorize = Callable[[Hello], HandshakeResult]


async def initiate(
    sock: socket.socket,
    credentials: Credentials,
    me: str,
    target: str,
    purpose: str,
    *,
    limit_s: float,
    process: bytes = b"",
) -> Keys:
    """Prove on a connected socket that this is node ``me``; check that the peer knows the run's secret, too.

    Raises:
        HandshakeRefused: The peer refused us, or did not prove that it knows the secret.
        TimeoutError: No result within ``limit_s`` seconds.
        OSError: The connection failed.
    """
    async with asyncio.timeout(limit_s):
        hello = msgspec.msgpack.encode(
            Hello(credentials.run_id, me, target, purpose, secrets.token_bytes(_NONCE_BYTES), process)
        )
        transcript = _START.pack(_MAGIC, PROTOCOL, len(hello)) + hello
        await send_all(sock, transcript)
        result, protocol, nonce, proof = _ANSWER.unpack(await read_exactly(sock, _ANSWER.size))
        if result != HandshakeResult.ACCEPTED:
            raise HandshakeRefused(_result(result), f"this is protocol {PROTOCOL}, the peer speaks {protocol}")
        transcript += nonce
        if not hmac.compare_digest(proof, _mac(credentials, "acceptor", transcript)):
            await send_all(sock, bytes(_PROOF_BYTES))  # a wrong proof, so that the other end can name the reason too
            raise HandshakeRefused(HandshakeResult.WRONG_SECRET)
        await send_all(sock, _mac(credentials, "initiator", transcript))
        (last,) = await read_exactly(sock, 1)
        if last != HandshakeResult.ACCEPTED:
            raise HandshakeRefused(_result(last))
        return Keys(_mac(credentials, "from initiator", transcript), _mac(credentials, "from acceptor", transcript))


async def accept(
    sock: socket.socket, credentials: Credentials, authorize: Authorize, *, limit_s: float
) -> tuple[Hello, Keys]:
    """Check who connects. ``authorize`` is called only for initiators that know the secret.

    Reads at most ``MAX_HELLO_BYTES`` + 40 bytes.

    Raises:
        HandshakeRefused: The initiator was refused, and has been told why.
        TimeoutError: No result within ``limit_s`` seconds.
        OSError: The connection failed, or the initiator sent something other than a handshake of this project.
    """
    async with asyncio.timeout(limit_s):
        start, hello_bytes, hello = await _read_hello(sock, credentials)
        transcript = start + hello_bytes + (nonce := secrets.token_bytes(_NONCE_BYTES))
        proof = _mac(credentials, "acceptor", transcript)
        await send_all(sock, _ANSWER.pack(HandshakeResult.ACCEPTED, PROTOCOL, nonce, proof))
        known = hmac.compare_digest(await read_exactly(sock, _PROOF_BYTES), _mac(credentials, "initiator", transcript))
        result = authorize(hello) if known else HandshakeResult.WRONG_SECRET
        if result != HandshakeResult.ACCEPTED:
            with contextlib.suppress(OSError):  # the initiator may have refused us and closed the connection
                await send_all(sock, bytes([result]))
            raise HandshakeRefused(result, f"the initiator claims to be {hello.initiator[:40]!r}")
        await send_all(sock, bytes([result]))
        return hello, Keys(
            _mac(credentials, "from acceptor", transcript), _mac(credentials, "from initiator", transcript)
        )


async def _read_hello(sock: socket.socket, credentials: Credentials) -> tuple[bytes, bytes, Hello]:
    start = await read_exactly(sock, _START.size)
    magic, protocol, length = _START.unpack(start)
    if magic != _MAGIC:
        raise ConnectionError("not a handshake of this project")
    if length > MAX_HELLO_BYTES:
        raise ConnectionError(f"a hello of {length} bytes; the limit is {MAX_HELLO_BYTES}")
    data = await read_exactly(sock, length)
    if protocol != PROTOCOL:
        detail = f"peer speaks protocol {protocol}, this is {PROTOCOL}"
        raise await _refusal(sock, HandshakeResult.WRONG_PROTOCOL, detail)
    hello = decode_hello(data)
    if hello.run_id != credentials.run_id:
        detail = f"the initiator claims to be {hello.initiator[:40]!r}"
        raise await _refusal(sock, HandshakeResult.WRONG_SECRET, detail)
    return start, data, hello


def decode_hello(data: bytes) -> Hello:
    """Decode untrusted bytes. Raise ``ConnectionError`` if they are not a hello."""
    try:
        return msgspec.msgpack.decode(data, type=Hello)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: text that is not UTF-8
        raise ConnectionError(f"not a hello: {error}") from error


async def _refusal(sock: socket.socket, result: HandshakeResult, detail: str) -> HandshakeRefused:
    await send_all(sock, _ANSWER.pack(result, PROTOCOL, bytes(_NONCE_BYTES), bytes(_PROOF_BYTES)))
    return HandshakeRefused(result, detail)


async def read_exactly(sock: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes from a socket. Raise ``ConnectionError`` if the stream ends before that."""
    data = bytearray()
    while len(data) < size:
        portion = await receive(sock, size - len(data))
        if not portion:
            raise ConnectionError("the peer closed the connection during the handshake")
        data += portion
    return bytes(data)


def _mac(credentials: Credentials, purpose: str, transcript: bytes) -> bytes:
    return hmac.digest(credentials.secret, purpose.encode() + b"\0" + transcript, "sha256")


def _result(code: int) -> HandshakeResult:
    try:
        return HandshakeResult(code)
    except ValueError as error:
        raise ConnectionError(f"unknown handshake result {code}") from error
