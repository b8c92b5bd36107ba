"""Connections under TLS: nothing in clear, nobody but nodes of the run, and the same training."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
import torch
from cryptography import x509

from testbed.errors import ScenarioError
from testbed.messages import Message, MessageKind
from testbed.realtime import tls
from testbed.realtime.tls import RECORD_BYTES, Tls, TlsSocket, new_pem, new_tls, receive, send_all, start_tls
from testbed.realtime.world import RealWorld
from tests.contract.programs import receiving, sending
from tests.contract.tiny import REMOTE, WORKER
from tests.faults.runs import plan_of, run
from tests.for_each import for_each
from tests.realtime.in_process import InProcess

WORDS = b"what nobody else is to read"


@pytest.fixture(scope="module")
def ours() -> Tls:
    return new_tls()


@pytest.fixture(scope="module")
def theirs() -> Tls:
    return new_tls()


async def _tap(one: socket.socket, other: socket.socket, heard: bytearray) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(one, 1 << 16):
            heard += data
            await loop.sock_sendall(other, data)


async def tapped(client: Tls | None, server: Tls | None) -> tuple[bytes, bytes]:
    """What the server was told, and what was heard on the line."""
    loop, heard = asyncio.get_running_loop(), bytearray()
    near, line_in = socket.socketpair()
    line_out, far = socket.socketpair()
    for sock in (near, line_in, line_out, far):
        sock.setblocking(False)
    taps = [loop.create_task(_tap(*way, heard)) for way in ((line_in, line_out), (line_out, line_in))]

    async def speak() -> None:
        sock = await start_tls(near, client, 5.0, server_side=False)
        await send_all(sock, WORDS)
        await receive(sock, 1)

    async def listen() -> bytes:
        sock = await start_tls(far, server, 5.0, server_side=True)
        try:
            words = await receive(sock, 100)
            await send_all(sock, b"!")
        finally:
            sock.close()
        return words

    speaking = loop.create_task(speak())
    try:
        async with asyncio.timeout(5):
            return await listen(), bytes(heard)
    finally:
        for task in (*taps, speaking):
            task.cancel()
        await asyncio.gather(*taps, speaking, return_exceptions=True)
        for sock in (near, line_in, line_out, far):
            sock.close()


def test_nothing_is_heard_on_the_line(ours: Tls) -> None:
    told, heard = asyncio.run(tapped(None, None))
    assert told == WORDS and heard.startswith(WORDS)
    told, heard = asyncio.run(tapped(ours, ours))
    assert told == WORDS and WORDS not in heard and len(heard) > len(WORDS)


def test_another_runs_certificate_is_refused(ours: Tls, theirs: Tls) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, TimeoutError)):
        asyncio.run(tapped(theirs, ours))


def test_a_peer_without_a_certificate_is_refused(ours: Tls) -> None:
    """TLS alone is not enough: both ends have to show that they are of the run."""
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(tapped(Tls(ours.server, bare), ours))


def test_a_peer_without_tls_is_refused(ours: Tls) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        asyncio.run(tapped(None, ours))


def test_messages_of_all_sizes_arrive_whole() -> None:
    """Beyond a record and beyond what a socket takes at once, both kinds of end: with more here than was asked for."""
    sizes = [1, 100, RECORD_BYTES // 4 - 30, RECORD_BYTES // 4, 50_000, 1_000_000]
    sent = [torch.arange(float(size)) for size in sizes]
    messages = [Message(MessageKind.PUSH, key, 0, parts=(tensor.clone(),)) for key, tensor in enumerate(sent)]
    got = InProcess(tls=True)({WORKER: sending(REMOTE, *messages), REMOTE: receiving(len(sizes))})
    assert all(torch.equal(message.parts[0], tensor) for message, tensor in zip(got[REMOTE], sent, strict=True))


@for_each("covered", [True, False])
def test_every_connection_of_a_node_is_covered(covered: bool) -> None:
    async def asking(world: RealWorld) -> set[bool]:
        await world.send(REMOTE, Message(MessageKind.PULL))
        await world.receive("an answer")
        return {isinstance(connection._stream._sock, TlsSocket) for connection in world.network._connections()}

    async def answering(world: RealWorld) -> None:
        await world.receive("a question")
        await world.send(WORKER, Message(MessageKind.VALUE))

    kinds = InProcess(tls=covered)({WORKER: asking, REMOTE: answering})[WORKER]
    assert kinds == {covered}


def test_small_pieces_share_a_record() -> None:
    pieces = [memoryview(bytes(size)) for size in (100, 20_000, 32)]
    assert len(tls._joined(pieces)) == RECORD_BYTES and tls._joined(pieces[1:]) is pieces[1]
    assert len(tls._joined(pieces[::2])) == 132


class _Busy(TlsSocket):
    """A TLS socket that cannot send at first, and must then be given the same bytes."""

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        tried.append(bytes(data))
        if len(tried) == 1:
            raise ssl.SSLWantWriteError
        return len(data)


tried: list[bytes] = []


def test_what_was_refused_is_offered_again_unchanged() -> None:
    sock = _Busy.__new__(_Busy)
    with pytest.raises(ssl.SSLWantWriteError):
        sock.sendmsg([memoryview(b"one")])
    assert sock.sendmsg([memoryview(b"one"), memoryview(b"two")]) == 3
    assert tried == [b"one", b"one"]


def test_the_key_stays_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = new_tls()
    assert not list(tmp_path.rglob("*")) and "Context" not in repr(made)


def test_a_machine_whose_clock_is_years_behind_or_ahead_accepts_the_certificate() -> None:
    certificate = x509.load_pem_x509_certificate(new_pem().encode())
    assert certificate.not_valid_before_utc.year == 2000 and certificate.not_valid_after_utc.year == 9999


@pytest.mark.slow  # 2 s
def test_a_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    small = ("training.rounds=4", "device.step_time=20 ms")
    hashes = [run(tmp_path / said, *small, f"transport.tls={said}", on="local").hashes() for said in ("true", "false")]
    assert hashes[0] == hashes[1] and len(hashes[0]) == 1


@for_each(
    ("overrides", "says"),
    [
        (("order=dgt",), "also sends datagrams"),
        (("paradigm=gloo", "run.on=local"), "'gloo' opens its own"),
    ],
)
def test_tls_with_connections_that_it_would_not_cover_is_refused(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan_of("transport.tls=true", *overrides, on="local")


def test_a_simulation_warns_that_it_leaves_tls_out() -> None:
    assert any("22 bytes to each record" in text for text in plan_of("transport.tls=true").warnings)
    assert not any("tls" in text for text in plan_of().warnings)
