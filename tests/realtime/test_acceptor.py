"""Callers at a node's port: one that cannot be accepted now is accepted later, and the log of refusals stays short."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from testbed.plan.model import Plan
from testbed.realtime.auth import DATA, HandshakeResult, Hello, Keys, initiate, new_credentials
from testbed.realtime.connecting import Acceptor, RefusalLog
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
            plan=plan,
            name=REMOTE,
            addresses={REMOTE: self.address},
            listener=listener,
            credentials=self.credentials,
            epoch_ns=0,
            tokens=Tokens.make(1),
            limits=ConnectionLimits(handshakes=PLACES),
        )
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


def run(program: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program)


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
