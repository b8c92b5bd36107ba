"""Connections through shared memory: where they are used, what arrives, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import dataclasses
import mmap
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from testbed.realtime import shared_memory
from testbed.realtime.auth import DATA, Keys
from testbed.realtime.connection import Connection
from testbed.realtime.send_queue import SendQueue
from testbed.realtime.shared_memory import RING_BYTES, SharedStream, offer, shares_memory, take
from testbed.realtime.stream import ByteStream, SocketStream
from testbed.settings.run import Transport
from tests.contract.programs import idle
from tests.contract.tiny import NEIGHBOUR, REMOTE, WORKER, tiny_plan
from tests.for_each import for_each

KEYS = Keys(b"o" * 32, b"i" * 32)
MIRRORED = Keys(b"i" * 32, b"o" * 32)


def with_pair(use: Callable[[ByteStream, ByteStream, tuple[socket.socket, socket.socket]], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
        ours, theirs = await asyncio.gather(offer(pair[0], KEYS), take(pair[1], MIRRORED))
        try:
            await use(ours, theirs, pair)
        finally:
            ours.close()
            theirs.close()

    asyncio.run(run())


async def carried(source: ByteStream, target: ByteStream, data: bytes, portion: int) -> bytes:
    """Write ``data`` to one end as it takes it, and read it at the other in portions."""
    loop, left, got = asyncio.get_running_loop(), memoryview(data), bytearray()
    done, buffer = loop.create_future(), memoryview(bytearray(portion))

    def write() -> None:
        nonlocal left
        left = left[source.sendmsg([left[:50_000], left[50_000:100_000]]) :]
        if not left:
            source.on_writable(None)

    def read() -> None:
        got.extend(buffer[: target.recv_into(buffer)])
        if len(got) == len(data) and not done.done():
            done.set_result(None)

    source.on_writable(write)
    target.on_readable(read)
    await asyncio.wait_for(done, 240)
    target.on_readable(None)
    return bytes(got)


@for_each("portion", [1001, 65_536, 3 * RING_BYTES])
def test_bytes_arrive_in_order_in_both_directions_however_often_the_ring_is_full(portion: int) -> None:
    data = os.urandom(RING_BYTES * 2 + 12_345)

    async def use(ours: ByteStream, theirs: ByteStream, _: object) -> None:
        assert isinstance(ours, SharedStream)
        assert isinstance(theirs, SharedStream)
        assert await carried(ours, theirs, data, portion) == data
        assert await carried(theirs, ours, data[:777], portion) == data[:777]

    with_pair(use)


def test_a_full_ring_takes_no_more_until_it_is_read() -> None:
    async def use(ours: ByteStream, theirs: ByteStream, _: object) -> None:
        data = memoryview(bytes(RING_BYTES + 1))
        assert ours.sendmsg([data]) == RING_BYTES
        with pytest.raises(BlockingIOError):
            ours.sendmsg([data])
        assert theirs.recv_into(memoryview(bytearray(1000))) == 1000
        assert ours.sendmsg([data]) == 1000

    with_pair(use)


def test_the_bell_rings_only_where_the_reader_may_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []

    async def use(ours: ByteStream, theirs: ByteStream, _: object) -> None:
        monkeypatch.setattr(shared_memory._Bell, "wake_peer", lambda bell: rung.append(bell.ring))
        buffer = memoryview(bytearray(100))
        ours.sendmsg([memoryview(b"one")])
        assert len(rung) == 1, "it had nothing to read"
        ours.sendmsg([memoryview(b"two")])
        assert len(rung) == 1, "it has not taken the first yet, and looks again before it sleeps"
        assert theirs.recv_into(buffer[:4]) == 4
        ours.sendmsg([memoryview(b"three")])
        assert len(rung) == 1
        assert theirs.recv_into(buffer) == 7
        ours.sendmsg([memoryview(b"four")])
        assert len(rung) == 2

    with_pair(use)


def test_a_reader_that_falls_asleep_again_and_again_misses_nothing() -> None:
    """Two processes: the writer writes one byte whenever it has got one, so both sleep before every byte."""
    turns = 3000

    async def play(stream: ByteStream, begins: bool) -> None:
        done, buffer, left = asyncio.get_running_loop().create_future(), memoryview(bytearray(10)), turns

        def read() -> None:
            nonlocal left
            left -= stream.recv_into(buffer)
            if left >= begins:
                stream.sendmsg([memoryview(b"x")])
            if not left and not done.done():
                done.set_result(None)

        stream.on_readable(read)
        if begins:
            stream.sendmsg([memoryview(b"x")])
        await asyncio.wait_for(done, 240)

    async def one(make: Callable[[socket.socket, Keys], Awaitable[ByteStream]], sock: socket.socket) -> None:
        sock.setblocking(False)
        stream = await make(sock, KEYS if make is offer else MIRRORED)
        assert isinstance(stream, SharedStream)
        await play(stream, begins=make is offer)
        if make is offer:
            stream.close()

    pair = socket.socketpair()
    child = os.fork()
    if not child:
        code = 1
        try:
            pair[0].close()
            asyncio.new_event_loop().run_until_complete(one(take, pair[1]))
            code = 0
        finally:
            os._exit(code)
    pair[1].close()
    asyncio.run(one(offer, pair[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_written_before_the_peer_ended_is_read_first() -> None:
    async def use(ours: ByteStream, theirs: ByteStream, pair: object) -> None:
        ours.sendmsg([memoryview(b"last words")])
        ours.close()
        seen: list[int] = []
        ended = asyncio.get_running_loop().create_future()

        def read() -> None:
            seen.append(theirs.recv_into(memoryview(bytearray(100))))
            if seen[-1] == 0:
                theirs.on_readable(None)
                ended.set_result(None)

        theirs.on_readable(read)
        await asyncio.wait_for(ended, 240)
        assert seen == [10, 0]

    with_pair(use)


def test_an_end_closes_all_that_it_has_opened() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    mapped = Path("/proc/self/maps").read_text().count("testbed-connection")

    async def use(ours: ByteStream, theirs: ByteStream, _: object) -> None:
        assert Path("/proc/self/maps").read_text().count("testbed-connection") == mapped + 2

    with_pair(use)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert Path("/proc/self/maps").read_text().count("testbed-connection") == mapped


class _NoHandler:
    def on_arrival(self, connection: Connection, arrival: object) -> None:
        raise AssertionError("nothing is sent to this end")

    def on_end(self, connection: Connection, cause: str | None) -> None:
        raise AssertionError(cause)


@for_each("shared", [True, False])
def test_only_frames_that_others_can_reach_have_a_code(shared: bool) -> None:
    async def use(ours: ByteStream, theirs: ByteStream, _: object) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            other, _ = listener.accept()
        one.setblocking(False)
        connection = Connection(ours if shared else SocketStream(one), WORKER, DATA, SendQueue(1), _NoHandler())
        connection.queue.post(b"a header")
        connection.start(KEYS, Transport(), 0)
        await asyncio.sleep(0)
        buffer = memoryview(bytearray(100))
        count = theirs.recv_into(buffer) if shared else other.recv_into(buffer)
        assert (bytes(buffer[count - 32 : count]) == bytes(32)) is shared
        connection.close()
        one.close()
        other.close()

    with_pair(use)


def test_an_offer_of_another_key_is_refused() -> None:
    async def run() -> None:
        one, other = socket.socketpair()
        one.setblocking(False)
        other.setblocking(False)
        offering = asyncio.create_task(offer(one, Keys(b"x" * 32, b"i" * 32)))
        with pytest.raises(ConnectionError, match="wrong code"):
            await take(other, MIRRORED)
        other.close()
        with pytest.raises(ConnectionError):
            await offering
        one.close()

    asyncio.run(run())


@for_each("spoilt", ["size", "seals", "nothing"])
def test_without_sound_memory_both_ends_stay_with_the_socket(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mapped(path: str) -> mmap.mmap:
        if spoilt == "nothing":
            return original("/proc/self/fd/100000")
        file = os.memfd_create("spoilt", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, 4096 if spoilt == "size" else shared_memory._FILE_BYTES)
        try:
            return original(f"/proc/self/fd/{file}")
        finally:
            os.close(file)

    original = shared_memory._mapped
    monkeypatch.setattr(shared_memory, "_mapped", mapped)

    async def use(ours: ByteStream, theirs: ByteStream, _: object) -> None:
        assert isinstance(ours, SocketStream)
        assert isinstance(theirs, SocketStream)
        assert await carried(ours, theirs, b"abc" * 1000, 100) == b"abc" * 1000

    with_pair(use)


def test_only_nodes_of_one_data_center_without_an_emulated_link_share_memory() -> None:
    plan = dataclasses.replace(tiny_plan({WORKER: idle, NEIGHBOUR: idle, REMOTE: idle}), back_end="local")
    assert shares_memory(plan, WORKER, NEIGHBOUR)
    assert not shares_memory(plan, WORKER, REMOTE)
    for off in (Transport(shared_memory=False), Transport(tls=True)):
        assert not shares_memory(dataclasses.replace(plan, transport=off), WORKER, NEIGHBOUR)
    shaped = dataclasses.replace(plan, back_end="emulate")
    for rate_bps, delay_s, expected in ((1e9, 0.0, False), (1e10, 1e-3, False), (1e10, 0.0, True)):
        sites = tuple(
            dataclasses.replace(site, lan_rate_bps=rate_bps, lan_delay_s=delay_s) for site in plan.network.sites
        )
        emulated = dataclasses.replace(shaped, network=dataclasses.replace(plan.network, sites=sites))
        assert shares_memory(emulated, WORKER, NEIGHBOUR) is expected
