"""The handshake: ends that share the secret get keys; others are refused with a reason, or time out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from testbed.realtime import auth
from testbed.realtime.auth import (
    Credentials,
    HandshakeRefused,
    HandshakeResult,
    Hello,
    accept,
    initiate,
    new_credentials,
)
from tests.contract.tiny import tiny_plan
from tests.for_each import for_each

GOOD = Credentials("run", b"s" * 32)
LIMIT_S = 60.0


def welcome(hello: Hello) -> HandshakeResult:
    return HandshakeResult.ACCEPTED if hello.target == "t" else HandshakeResult.UNKNOWN_NODE


def meet(
    mine: Credentials, theirs: Credentials, authorize: Callable[[Hello], HandshakeResult] = welcome, target: str = "t"
) -> list[Any]:
    return talk(
        lambda sock: initiate(sock, mine, "me", target, "data", limit_s=LIMIT_S),
        lambda sock: accept(sock, theirs, authorize, limit_s=LIMIT_S),
    )


def talk(*ends: Callable[[socket.socket], Coroutine[Any, Any, Any]]) -> list[Any]:
    async def run() -> list[Any]:
        sockets = socket.socketpair()
        for sock in sockets:
            sock.setblocking(False)

        async def one(end: Callable[[socket.socket], Coroutine[Any, Any, Any]], sock: socket.socket) -> Any:
            with sock:
                return await end(sock)

        return await asyncio.gather(
            *(one(end, sock) for end, sock in zip(ends, sockets, strict=True)), return_exceptions=True
        )

    return asyncio.run(run())


def test_both_ends_agree_on_two_different_keys() -> None:
    keys, (hello, other) = meet(GOOD, GOOD)
    assert (hello.initiator, hello.target, hello.purpose) == ("me", "t", "data")
    assert (keys.outgoing, keys.incoming) == (other.incoming, other.outgoing)
    assert keys.outgoing != keys.incoming
    again, _ = meet(GOOD, GOOD)
    assert again.outgoing != keys.outgoing, "keys must be fresh for every connection"


@for_each("bad", [Credentials("run", b"x" * 32), Credentials("old run", b"s" * 32)])
def test_a_wrong_secret_or_run_is_named_at_both_ends(bad: Credentials) -> None:
    for outcome in meet(bad, GOOD):
        assert isinstance(outcome, HandshakeRefused)
        assert "wrong secret or wrong run" in str(outcome)


def test_another_protocol_is_named_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def newer(sock: socket.socket) -> Any:
        return await initiate(sock, GOOD, "me", "t", "data", limit_s=LIMIT_S)

    real = auth._START

    class Newer:
        size = real.size
        unpack = staticmethod(real.unpack)
        pack = staticmethod(lambda magic, protocol, length: real.pack(magic, protocol + 1, length))

    monkeypatch.setattr(auth, "_START", Newer)
    mine, theirs = talk(newer, lambda sock: accept(sock, GOOD, welcome, limit_s=LIMIT_S))
    assert "version skew" in str(mine)
    assert f"version skew: peer speaks protocol {auth.PROTOCOL + 1}, this is {auth.PROTOCOL}" in str(theirs)


@for_each("result", [HandshakeResult.DUPLICATE, HandshakeResult.UNKNOWN_NODE])
def test_the_result_reaches_both_ends(result: HandshakeResult) -> None:
    for outcome in meet(GOOD, GOOD, lambda hello: result):
        assert isinstance(outcome, HandshakeRefused)
        assert outcome.result == result


def test_an_acceptor_that_does_not_know_the_secret_is_refused() -> None:
    async def impostor(sock: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        await loop.sock_recv(sock, 2000)
        await loop.sock_sendall(sock, auth._ANSWER.pack(HandshakeResult.ACCEPTED, auth.PROTOCOL, b"n" * 32, b"p" * 32))
        proof = await loop.sock_recv(sock, 2000)
        with contextlib.suppress(BrokenPipeError):
            await loop.sock_sendall(sock, bytes([HandshakeResult.ACCEPTED]))
        return proof

    outcome, proof = talk(lambda sock: initiate(sock, GOOD, "me", "t", "data", limit_s=LIMIT_S), impostor)
    assert isinstance(outcome, HandshakeRefused)
    assert proof == bytes(32), "nobody else must learn a proof from us"


def test_only_initiators_with_the_secret_are_authorized() -> None:
    asked = []
    meet(Credentials("run", b"x" * 32), GOOD, lambda hello: asked.append(hello) or HandshakeResult.ACCEPTED)
    assert asked == []


_PROTOCOL = auth.PROTOCOL.to_bytes(2, "big")


@for_each(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"TBH1" + _PROTOCOL + b"\xff\xff",
        b"TBH1" + _PROTOCOL + b"\x00\x04junk",
        b"",
        b"TBH1" + _PROTOCOL + b"\x00\x10\x95\xa1\x9c\xa1a\xa1b\xa1c" + b"\xc4\x05abcde",
    ],
)
def test_garbage_ends_the_handshake(garbage: bytes) -> None:
    async def hostile(sock: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(sock, garbage)

    _, outcome = talk(hostile, lambda sock: accept(sock, GOOD, welcome, limit_s=LIMIT_S))
    assert isinstance(outcome, ConnectionError)


@for_each("claimed_bytes", [auth.MAX_HELLO_BYTES, 65_535])
def test_a_silent_caller_times_out_and_a_flood_is_not_read(claimed_bytes: int) -> None:
    taken = []

    async def silent(sock: socket.socket) -> None:
        await asyncio.sleep(0.2)

    async def flood(sock: socket.socket) -> None:
        start = auth._START.pack(b"TBH1", auth.PROTOCOL, claimed_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        taken.append(sock.send(start + b"\xc1" * 100_000))
        await asyncio.sleep(0.2)

    async def listen(sock: socket.socket) -> int:
        try:
            await accept(sock, GOOD, welcome, limit_s=0.05)
        except ConnectionError:
            await asyncio.sleep(0.01)
            return len(sock.recv(1 << 20))
        raise AssertionError("it was let in")

    assert isinstance(talk(silent, lambda sock: accept(sock, GOOD, welcome, limit_s=0.05))[1], TimeoutError)
    left = talk(flood, listen)[1]
    assert taken[0] - left <= 1100


def test_the_limit_follows_the_plan() -> None:
    timeouts = tiny_plan([]).timeouts
    assert auth.handshake_limit_s(dataclasses.replace(timeouts, rendezvous_s=120.0)) == 30.0
    assert auth.handshake_limit_s(dataclasses.replace(timeouts, rendezvous_s=1.0)) == 2.0


def test_the_limit_grows_with_the_load_of_the_machine() -> None:
    timeouts = dataclasses.replace(tiny_plan([]).timeouts, rendezvous_s=120.0)
    assert [auth.handshake_limit_s(timeouts, load) for load in (0.5, 2.0, 50.0)] == [30.0, 60.0, 120.0]


def test_the_secret_shows_nowhere() -> None:
    credentials = new_credentials()
    assert credentials.secret != new_credentials().secret
    assert len(credentials.secret) == 32
    assert "secret" not in repr(credentials)
    keys, _ = meet(credentials, credentials)
    assert repr(keys) == "Keys()"
