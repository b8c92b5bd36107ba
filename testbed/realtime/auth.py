"""Who is there: each end of a new connection proves that it knows the run's secret, before anything else is read.

    initiator → acceptor   magic, protocol, length, hello (run, both names, purpose, nonce)
    acceptor  → initiator  verdict, protocol, nonce, proof
    initiator → acceptor   proof
    acceptor  → initiator  verdict

A proof is HMAC-SHA256 by the secret over everything said so far and the role in this exchange, so neither a recorded
nor a reflected one is of use. The two directions of the connection get a key each, derived the same way. The run's
identity is part of what is proven, hence a process left over from another run is told apart from an attacker by nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from testbed.errors import RunFailed
from testbed.realtime.tls import Stream, Tls, new_tls, receive, send_all

PROTOCOL = 1
HANDSHAKE_LIMIT_S = 2.0
MAX_HELLO_BYTES = 1024
SECRET_BYTES = 32
_NONCE_BYTES = 32
_PROOF_BYTES = 32

_MAGIC = b"TBH1"
_START = struct.Struct("!4sHH")  # magic, protocol, length of the hello
_ANSWER = struct.Struct(f"!BH{_NONCE_BYTES}s{_PROOF_BYTES}s")  # verdict, protocol, nonce, proof


class HandshakeResult(IntEnum):
    """What the acceptor says of the initiator."""

    WELCOME = 0
    WRONG_SECRET = 1
    WRONG_PROTOCOL = 2
    DUPLICATE = 3
    STRANGER = 4


_TEXTS = {
    HandshakeResult.WRONG_SECRET: "wrong secret or wrong run",
    HandshakeResult.WRONG_PROTOCOL: "version skew",
    HandshakeResult.DUPLICATE: "duplicate registration: a node of that name is connected already",
    HandshakeResult.STRANGER: "no such node, or not the node that was looked for",
}


class HandshakeRefused(RunFailed):
    """The handshake came to an end that trying again does not cure."""

    def __init__(self, verdict: HandshakeResult, detail: str = "") -> None:
        self.verdict = verdict
        super().__init__(_TEXTS[verdict] + (f": {detail}" if detail else ""))


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the nodes of one run share. The secret shows in no representation, so in no log either."""

    run_id: str
    secret: bytes = field(repr=False)
    tls: Tls | None = field(default=None, repr=False)


def new_credentials(tls: bool = False) -> Credentials:
    """Fresh ones, for one run. They reach its nodes by the memory that a fork shares, by nothing else."""
    return Credentials(secrets.token_hex(8), secrets.token_bytes(SECRET_BYTES), new_tls() if tls else None)


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of the frame codes, one per direction, as seen from this end."""

    outgoing: bytes = field(repr=False)
    incoming: bytes = field(repr=False)


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who calls whom, and what for (``data`` or ``heartbeat``)."""

    run_id: str
    initiator: str
    target: str
    purpose: str
    nonce: bytes


async def initiate(sock: Stream, credentials: Credentials, me: str, target: str, purpose: str) -> Keys:
    """Introduce ``me`` on a connected socket. Raise ``HandshakeRefused``, ``TimeoutError``, ``OSError``."""
    async with asyncio.timeout(HANDSHAKE_LIMIT_S):
        return await _initiate(sock, credentials, me, target, purpose)


async def _initiate(sock: Stream, credentials: Credentials, me: str, target: str, purpose: str) -> Keys:
    hello = msgspec.msgpack.encode(Hello(credentials.run_id, me, target, purpose, secrets.token_bytes(_NONCE_BYTES)))
    said = _START.pack(_MAGIC, PROTOCOL, len(hello)) + hello
    await send_all(sock, said)
    verdict, protocol, nonce, proof = _ANSWER.unpack(await _read(sock, _ANSWER.size))
    if verdict != HandshakeResult.WELCOME:
        raise HandshakeRefused(_verdict(verdict), f"this is protocol {PROTOCOL}, the peer speaks {protocol}")
    said += nonce
    if not hmac.compare_digest(proof, _mac(credentials, "acceptor", said)):
        await send_all(sock, bytes(_PROOF_BYTES))  # so that the other end can name the reason too
        raise HandshakeRefused(HandshakeResult.WRONG_SECRET)
    await send_all(sock, _mac(credentials, "initiator", said))
    (last,) = await _read(sock, 1)
    if last != HandshakeResult.WELCOME:
        raise HandshakeRefused(_verdict(last))
    return Keys(_mac(credentials, "from initiator", said), _mac(credentials, "from acceptor", said))


async def accept(
    sock: Stream, credentials: Credentials, judge: Callable[[Hello], HandshakeResult]
) -> tuple[Hello, Keys]:
    """Hear out who calls. ``judge`` is asked only about those who know the secret.

    Read at most ``MAX_HELLO_BYTES`` + 40 bytes. Raise ``HandshakeRefused`` (the peer knows), ``TimeoutError``,
    ``OSError``.
    """
    async with asyncio.timeout(HANDSHAKE_LIMIT_S):
        return await _accept(sock, credentials, judge)


async def _accept(
    sock: Stream, credentials: Credentials, judge: Callable[[Hello], HandshakeResult]
) -> tuple[Hello, Keys]:
    start, hello_bytes, hello = await _read_hello(sock, credentials)
    said = start + hello_bytes + (nonce := secrets.token_bytes(_NONCE_BYTES))
    proof = _mac(credentials, "acceptor", said)
    await send_all(sock, _ANSWER.pack(HandshakeResult.WELCOME, PROTOCOL, nonce, proof))
    known = hmac.compare_digest(await _read(sock, _PROOF_BYTES), _mac(credentials, "initiator", said))
    verdict = judge(hello) if known else HandshakeResult.WRONG_SECRET
    if verdict != HandshakeResult.WELCOME:
        with contextlib.suppress(OSError):  # it may have refused us, and be gone
            await send_all(sock, bytes([verdict]))
        raise HandshakeRefused(verdict, f"it says that it is {hello.initiator[:40]!r}")
    await send_all(sock, bytes([verdict]))
    return hello, Keys(_mac(credentials, "from acceptor", said), _mac(credentials, "from initiator", said))


async def _read_hello(sock: Stream, credentials: Credentials) -> tuple[bytes, bytes, Hello]:
    start = await _read(sock, _START.size)
    magic, protocol, length = _START.unpack(start)
    if magic != _MAGIC:
        raise ConnectionError("not one of our handshakes")
    if length > MAX_HELLO_BYTES:
        raise ConnectionError(f"a hello of {length} bytes")
    data = await _read(sock, length)
    if protocol != PROTOCOL:
        raise await _refusal(
            sock, HandshakeResult.WRONG_PROTOCOL, f"peer speaks protocol {protocol}, this is {PROTOCOL}"
        )
    hello = decode_hello(data)
    if hello.run_id != credentials.run_id:
        raise await _refusal(sock, HandshakeResult.WRONG_SECRET, f"it says that it is {hello.initiator[:40]!r}")
    return start, data, hello


def decode_hello(data: bytes) -> Hello:
    """Raises ``ConnectionError`` for what is none; it comes from somebody who has not shown yet who he is."""
    try:
        return msgspec.msgpack.decode(data, type=Hello)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: text that is not UTF-8
        raise ConnectionError(f"not a hello: {error}") from error


async def _refusal(sock: Stream, verdict: HandshakeResult, detail: str) -> HandshakeRefused:
    answer = _ANSWER.pack(verdict, PROTOCOL, bytes(_NONCE_BYTES), bytes(_PROOF_BYTES))
    await send_all(sock, answer)
    return HandshakeRefused(verdict, detail)


async def _read(sock: Stream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        portion = await receive(sock, size - len(data))
        if not portion:
            raise ConnectionError("the peer closed the connection during the handshake")
        data += portion
    return bytes(data)


def _mac(credentials: Credentials, purpose: str, said: bytes) -> bytes:
    return hmac.digest(credentials.secret, purpose.encode() + b"\0" + said, "sha256")


def _verdict(code: int) -> HandshakeResult:
    try:
        return HandshakeResult(code)
    except ValueError as error:
        raise ConnectionError(f"verdict {code}") from error
