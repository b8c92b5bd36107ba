"""Strangers at a node's port, for a day of virtual time and in thousands: nodes get in, and the log stays short."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
from collections import Counter
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from testbed.plan.model import Plan
from testbed.realtime import auth
from testbed.realtime.auth import DATA, HandshakeResult, Hello, Keys, initiate, new_credentials
from testbed.realtime.connecting import TOLD_EVERY_S, Acceptor, RefusalLog
from testbed.realtime.processor import Tokens
from testbed.realtime.setup import ConnectionLimits, NodeSetup
from testbed.realtime.sockets import listen
from testbed.realtime.stream import ByteStream
from tests.contract.tiny import REMOTE, WORKER, tiny_plan
from tests.realtime.virtual_loop import VirtualLoop

PLACES = 8
Line = tuple[float, str]


class Door:
    """A node's port; ``lines``: what it told, and when; ``entered``: the nodes that got in."""

    def __init__(self, plan: Plan) -> None:
        self._loop = asyncio.get_running_loop()
        self.lines: list[Line] = []
        self.entered: list[str] = []
        self.credentials = new_credentials()
        self.tasks: set[asyncio.Task[None]] = set()
        self.errors: list[BaseException] = []  # of tasks: raised here, asyncio would only log them
        listener = listen(("127.0.0.1", 0))
        self.address: tuple[str, int] = listener.getsockname()
        setup = NodeSetup(
            plan=plan, name=REMOTE, addresses={REMOTE: self.address}, listener=listener, credentials=self.credentials,
            epoch_ns=0, tokens=Tokens.make(1), limits=ConnectionLimits(handshakes=PLACES),
        )  # fmt: skip
        self.acceptor = Acceptor(setup, self, self.spawn)
        self.acceptor.start()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.tasks.add(task := self._loop.create_task(coroutine, name=name))
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append(error)

    def authorize(self, hello: Hello) -> HandshakeResult:
        return HandshakeResult.ACCEPTED

    def on_accepted(self, stream: ByteStream, hello: Hello, keys: Keys) -> None:
        self.entered.append(hello.initiator)
        stream.close()

    def warn(self, message: str) -> None:
        self.lines.append((self._loop.time(), message))

    def close(self) -> None:
        self.acceptor.close()
        for task in self.tasks:
            task.cancel()
        assert not self.errors


def hello_of_a_stranger(chance: Random) -> bytes:
    """A well-formed hello of another run, with a name of its own."""
    name = f"site{chance.randrange(10**9)}/worker{chance.randrange(10**9)}"
    body = msgspec.msgpack.encode(["run", name, REMOTE, DATA, chance.randbytes(32), chance.randbytes(8)])
    return auth._START.pack(auth._MAGIC, auth.PROTOCOL, len(body)) + body


def shouts(chance: Random) -> Iterator[bytes]:
    """What strangers say, for ever; most present another name or length each time."""
    while True:
        yield hello_of_a_stranger(chance)
        yield chance.randbytes(chance.randrange(1, 3000))
        yield auth._START.pack(auth._MAGIC, auth.PROTOCOL, chance.randrange(1025, 65536)) + b"x" * 100
        yield auth._START.pack(auth._MAGIC, chance.randrange(100, 60000), 0)
        yield auth._START.pack(auth._MAGIC, auth.PROTOCOL, 200) + chance.randbytes(200)


def kinds_told(lines: list[Line]) -> Counter[tuple[str, int]]:
    """Return how many lines there were by kind, without what strangers chose, and minute."""
    plain = ((at_s, re.sub(r"'[^']*'|[0-9]+|: .*", "", text.partition(": ")[2])) for at_s, text in lines)
    return Counter((text, int(at_s / TOLD_EVERY_S)) for at_s, text in plain)


def run(program: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program)


def test_slow_strangers_keep_no_node_out() -> None:
    """For half an hour of virtual time."""

    async def siege() -> None:
        loop, chance = asyncio.get_running_loop(), Random(1)
        door, words = Door(tiny_plan([REMOTE, WORKER])), shouts(chance)

        async def slow() -> None:
            with socket.create_connection(door.address) as sock:
                for byte in next(words)[: chance.choice((0, 1, 30, 400))]:
                    with contextlib.suppress(OSError):
                        sock.send(bytes([byte]))
                    await asyncio.sleep(chance.uniform(0.5, 3.0))
                await asyncio.sleep(chance.uniform(0.0, 60.0))

        async def node() -> float:
            began_s = loop.time()
            while True:  # as the connector does
                sock = socket.create_connection(door.address)
                sock.setblocking(False)
                with sock, contextlib.suppress(OSError, TimeoutError):
                    await initiate(sock, door.credentials, WORKER, REMOTE, DATA, limit_s=10.0)
                    return loop.time() - began_s
                await asyncio.sleep(0.5)

        strangers: set[asyncio.Task[None]] = set()
        waited_s = []
        for number in range(120):
            strangers.add(task := asyncio.create_task(slow()))
            task.add_done_callback(strangers.discard)
            await asyncio.sleep(15.0)
            assert len(door.acceptor._under_way) <= PLACES
            if number % 20 == 0:
                waited_s.append(await node())
        await asyncio.sleep(0)
        for task in strangers:
            task.cancel()
        door.close()
        assert len(door.entered) == len(waited_s) == 6
        assert max(waited_s) < 5.0
        assert max(kinds_told(door.lines).values()) == 1
        assert len(door.lines) < 120

    run(siege())


def test_a_node_without_descriptors_says_so_and_accepts_callers_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again a few times a second, and not all the time: the caller is reported again at once."""
    accept, calls = socket.socket.accept, list[float]()

    async def exhausted() -> None:
        loop, door = asyncio.get_running_loop(), Door(tiny_plan([REMOTE, WORKER]))
        free_s = loop.time() + 3.0

        def accept_later(listener: socket.socket) -> Any:
            calls.append(loop.time())
            if loop.time() < free_s and len(calls) < 1000:
                raise OSError(errno.EMFILE, "Too many open files")
            return accept(listener)

        monkeypatch.setattr(socket.socket, "accept", accept_later)
        with socket.create_connection(door.address) as sock:
            sock.setblocking(False)
            await initiate(sock, door.credentials, WORKER, REMOTE, DATA, limit_s=10.0)
        await asyncio.sleep(0.1)
        door.close()
        assert door.entered == [WORKER]
        (text,) = [text for _, text in door.lines]
        assert text.startswith("no connection is accepted for now: too many open files: raise the limit")

    run(exhausted())
    assert 2 < len(calls) < 50


def test_what_is_not_told_is_counted() -> None:
    lines: list[str] = []
    log = RefusalLog(lines.append)
    for second in range(130):
        log.note("wrong secret", f"wrong secret: 'name{second}'", "1.2.3.4:5", float(second))
        log.note("late", "late", "1.2.3.4:5", float(second)) if second < 3 else None
    log.close()
    assert lines == [
        "refused a connection from 1.2.3.4:5: wrong secret: 'name0'",
        "refused a connection from 1.2.3.4:5: late",
        "refused a connection from 1.2.3.4:5: wrong secret: 'name60'; 59 more like it since the last line",
        "refused a connection from 1.2.3.4:5: wrong secret: 'name120'; 59 more like it since the last line",
        "refused 2 more connections: late",
        "refused 9 more connections: wrong secret",
    ]
