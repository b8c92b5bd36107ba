"""Incoming connections of one node: accepted, secured and authenticated within bounds.

Handshakes have a limited number of places. A caller that has not finished keeps its place for
``auth.handshake_limit_s`` while there is room; once all places are taken, a new caller gets the place of the oldest
handshake, provided that this one has had ``SECURE_PLACE_S``. So nodes of the run get time on a busy host, and silent
strangers cannot keep them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Protocol

from testbed.errors import EXHAUSTED, of_os
from testbed.realtime.auth import (
    DATA,
    HandshakeRefused,
    HandshakeResult,
    Hello,
    Keys,
    accept,
    handshake_limit_s,
)
from testbed.realtime.overload import load_per_core
from testbed.realtime.refusals import RefusalLog
from testbed.realtime.setup import NodeSetup
from testbed.realtime.shared_memory import take
from testbed.realtime.sockets import Address, address_text, configure
from testbed.realtime.stream import ByteStream, SocketStream
from testbed.realtime.tasks import BackgroundTasks
from testbed.realtime.tls import start_tls

SECURE_PLACE_S = 2.0
_PAUSE_S = 0.2  # while no descriptors are left: a caller that is not accepted would be reported again at once
_LATE = "no complete handshake in time"


class AcceptorOwner(Protocol):
    """Decides about callers, and gets those that were accepted."""

    def authorize(self, hello: Hello) -> HandshakeResult: ...
    def on_accepted(self, stream: ByteStream, hello: Hello, keys: Keys) -> None: ...
    def warn(self, message: str) -> None: ...


class Acceptor:
    """Accepts connections at the node's listener, which becomes its own, from ``start`` until ``close``."""

    def __init__(self, setup: NodeSetup, owner: AcceptorOwner, tasks: BackgroundTasks) -> None:
        self._setup, self._plan, self._credentials = setup, setup.plan, setup.credentials
        self._places, self._owner, self._tasks = setup.limits.handshakes, owner, tasks
        self.listener = setup.listener
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], tuple[float, Address]] = {}  # since when and from where; oldest first
        self._refusals = RefusalLog(owner.warn)
        self._pause: asyncio.TimerHandle | None = None
        self._has_warned = False

    def start(self) -> None:
        """Raise ``CapabilityError`` if the kernel refuses what the plan says of sockets."""
        self.listener.setblocking(False)
        configure(self.listener, self._plan)
        self._loop.add_reader(self.listener, self._on_caller)

    def close(self) -> None:
        """Accept no more. Handshakes under way end with the tasks."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self.listener)
        self.listener.close()
        self._refusals.close()

    def _on_caller(self) -> None:
        try:
            sock, address = self.listener.accept()
        except OSError as error:
            if error.errno in EXHAUSTED and not isinstance(error, BlockingIOError):
                self._wait_for_descriptors(error)
            return  # or the caller went away again
        if not self._has_place():
            sock.close()
            self._note_refusal("too many at a time", "too many at a time", address)
            return
        sock.setblocking(False)
        task = self._tasks.spawn(self._admit(sock, address))
        self._under_way[task] = self._loop.time(), address
        task.add_done_callback(lambda done: self._under_way.pop(done, None))

    def _wait_for_descriptors(self, error: OSError) -> None:
        self._loop.remove_reader(self.listener)
        self._pause = self._loop.call_later(_PAUSE_S, self._loop.add_reader, self.listener, self._on_caller)
        if not self._has_warned:
            self._has_warned = True
            self._owner.warn(f"no connection is accepted for now: {of_os(error)}")

    def _has_place(self) -> bool:
        if len(self._under_way) < self._places:
            return True
        oldest, (began_at_s, address) = next(iter(self._under_way.items()))
        if self._loop.time() - began_at_s < SECURE_PLACE_S:
            return False
        oldest.cancel()
        del self._under_way[oldest]
        self._note_refusal(_LATE, _LATE, address)
        return True

    async def _admit(self, plain: socket.socket, address: Address) -> None:
        limit_s = handshake_limit_s(self._plan.timeouts, load_per_core())
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(plain.close)
            try:
                configure(plain, self._plan)
                sock = await start_tls(plain, self._credentials.tls, limit_s, server_side=True)
                on_failure.callback(sock.close)
                hello, keys = await accept(sock, self._credentials, self._owner.authorize, limit_s=limit_s)
                stream: ByteStream = SocketStream(sock)
                if hello.purpose == DATA and self._setup.shares_memory(hello.initiator):
                    async with asyncio.timeout(limit_s):
                        stream = await take(sock, keys)
                    if isinstance(stream, SocketStream):
                        self._owner.warn(f"{hello.initiator}: its shared memory cannot be opened; its socket is used")
            except (HandshakeRefused, OSError, TimeoutError) as error:
                return self._note_refusal(_kind(error), str(error) or _LATE, address)
            on_failure.pop_all()
        return self._owner.on_accepted(stream, hello, keys)

    def _note_refusal(self, kind: str, reason: str, address: Address) -> None:
        self._refusals.note(kind, reason, address_text(address), self._loop.time())


def _kind(error: Exception) -> str:
    """Return what went wrong, in words of ours."""
    if isinstance(error, HandshakeRefused):
        return error.result.name.lower().replace("_", " ")
    return _LATE if isinstance(error, TimeoutError) else "no handshake of this project"
