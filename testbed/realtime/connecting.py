"""How a node opens and accepts connections: with TLS and authentication, and with limits against strangers.

Nodes start in any order, so a peer may not listen yet. A node therefore retries with exponential back-off until the
rendezvous ends if there is no listener or no answer in time. A refusal by the peer is final.

Only a limited number of callers may be in a handshake at the same time. Each has ``auth.handshake_limit_s`` to finish
while places are free. Once all places are taken, a new caller replaces the caller with the oldest handshake, if that
handshake has lasted at least ``SECURE_PLACE_S``. So nodes of the run get time on a busy host, and silent strangers
cannot keep them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from testbed.errors import EXHAUSTED, RunFailed, of_os
from testbed.realtime.auth import (
    HandshakeRefused,
    HandshakeResult,
    Hello,
    Keys,
    accept,
    handshake_limit_s,
    initiate,
)
from testbed.realtime.overload import load_per_core
from testbed.realtime.setup import NodeSetup
from testbed.realtime.shared_memory import offer, take
from testbed.realtime.sockets import Address, address_text, configure, new_socket
from testbed.realtime.stream import ByteStream, SocketStream
from testbed.realtime.tls import start_tls

# A node starts within milliseconds, and a user hardly notices 0.5 s.
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_PROCESS_BYTES = 8
_CONNECT_LIMIT_S = 5.0  # enough for two lost SYNs (1 s and 2 s later); then another attempt
SECURE_PLACE_S = 2.0
_PAUSE_S = 0.2  # while no descriptors are left: the loop would report a caller that is not accepted again and again
TOLD_EVERY_S = 60.0
_LATE = "no complete handshake in time"

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]
"""Runs a coroutine as a task of the given name; an error in the task ends the node."""


class Connector:
    """Opens connections from a node to the others of its plan."""

    def __init__(self, setup: NodeSetup) -> None:
        self._setup = setup
        self._plan = setup.plan
        self._node = setup.name
        self._addresses = setup.addresses
        self._credentials = setup.credentials
        self._process = secrets.token_bytes(_PROCESS_BYTES)

    async def connect(
        self, to: str, purpose: str, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[ByteStream, Keys] | None:
        """Return a connected and authenticated stream and its keys; None if ``is_gone()`` after a failed attempt.

        Raises ``RunFailed`` if ``to`` refuses this node, or cannot be reached before the rendezvous ends.
        """
        loop = asyncio.get_running_loop()
        limit_s = self._plan.timeouts.rendezvous_s
        pause_s = _FIRST_PAUSE_S
        end_s = loop.time() + limit_s
        place = address_text(self._addresses[to])
        while True:
            try:
                return await self._attempt(to, purpose)
            except HandshakeRefused as error:
                raise RunFailed(f"{self._node}: {to} ({place}): {error}") from error
            except (OSError, TimeoutError) as error:
                if is_gone():
                    return None
                if loop.time() + pause_s > end_s:
                    text = f"{self._node} could not reach {to} ({place}) in {limit_s:g} s: {error}"
                    raise RunFailed(text) from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _attempt(self, to: str, purpose: str) -> tuple[ByteStream, Keys]:
        limit_s = handshake_limit_s(self._plan.timeouts, load_per_core())
        with contextlib.ExitStack() as on_failure:
            plain = new_socket(self._setup.bound[0])
            on_failure.callback(plain.close)
            configure(plain, self._plan)
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                await asyncio.get_running_loop().sock_connect(plain, self._addresses[to])
            sock = await start_tls(plain, self._credentials.tls, limit_s, server_side=False)
            on_failure.callback(sock.close)
            keys = await initiate(
                sock, self._credentials, self._node, to, purpose, limit_s=limit_s, process=self._process
            )
            stream: ByteStream = SocketStream(sock)
            if self._setup.shares_memory(to, purpose):
                async with asyncio.timeout(limit_s):
                    stream = await offer(sock, keys)
            on_failure.pop_all()
        return stream, keys


class AcceptorOwner(Protocol):
    """Decides which callers to accept, and receives their connections."""

    def authorize(self, hello: Hello) -> HandshakeResult: ...
    def on_accepted(self, stream: ByteStream, hello: Hello, keys: Keys) -> None: ...
    def warn(self, message: str) -> None: ...


class Acceptor:
    """Accepts connections at the node's listener from ``start`` until ``close``. Takes ownership of the listener."""

    def __init__(self, setup: NodeSetup, owner: AcceptorOwner, spawn: Spawn) -> None:
        self._setup = setup
        self._plan = setup.plan
        self._credentials = setup.credentials
        self._places = setup.limits.handshakes
        self._owner = owner
        self._spawn = spawn
        self.listener = setup.listener
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], tuple[float, Address]] = {}  # since when and from where; oldest first
        self._refusals = RefusalLog(owner.warn)
        self._pause: asyncio.TimerHandle | None = None
        self._has_warned = False

    def start(self) -> None:
        """Begin to accept. Raise ``CapabilityError`` if the kernel refuses the plan's socket options."""
        self.listener.setblocking(False)
        configure(self.listener, self._plan)
        self._loop.add_reader(self.listener, self._on_caller)

    def close(self) -> None:
        """Accept no more. Handshakes under way end when the owner cancels their tasks."""
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
        task = self._spawn(self._admit(sock, address), "admit a caller")
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
                if self._setup.shares_memory(hello.initiator, hello.purpose):
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


class RefusalLog:
    """Warns of refused connections, in few lines however many strangers call and whatever names they present.

    It warns of the first refusal of a kind at once, then at most once in ``TOLD_EVERY_S`` seconds. Kinds are fixed
    texts of this module, so there are few of them; only ``reason`` may contain what a stranger has sent.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._told_at_s: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def note(self, kind: str, reason: str, caller: str, now_s: float) -> None:
        """Count a refusal at ``now_s``; warn of it if the last warning of its kind is old enough."""
        if now_s - self._told_at_s.get(kind, -TOLD_EVERY_S) < TOLD_EVERY_S:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return
        self._told_at_s[kind] = now_s
        others = self._untold.pop(kind, 0)
        more = f"; {others} more like it since the last line" if others else ""
        self._warn(f"refused a connection from {caller}: {reason}{more}")

    def close(self) -> None:
        """Warn how many connections of each kind were refused since the last warning of that kind."""
        for kind, count in self._untold.items():
            self._warn(f"refused {count} more connections: {kind}")
        self._untold.clear()


def _kind(error: Exception) -> str:
    """Return the kind of a refusal: a fixed text, without anything that the caller has sent."""
    if isinstance(error, HandshakeRefused):
        return error.result.name.lower().replace("_", " ")
    return _LATE if isinstance(error, TimeoutError) else "no handshake of this project"
