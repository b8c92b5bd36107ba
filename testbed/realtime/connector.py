"""Outgoing connections of one node: connected, secured and authenticated, with retries until the rendezvous ends.

Nodes start in any order, so a peer may not listen yet. What a retry can cure (no listener, no answer in time) is
retried with exponential back-off; a refusal by the peer is final.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable

from testbed.errors import RunFailed
from testbed.realtime.auth import DATA, HandshakeRefused, Keys, handshake_limit_s, initiate
from testbed.realtime.overload import load_per_core
from testbed.realtime.setup import NodeSetup
from testbed.realtime.shared_memory import offer
from testbed.realtime.sockets import address_text, configure, new_socket
from testbed.realtime.stream import ByteStream, SocketStream
from testbed.realtime.tls import start_tls

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5  # a node is up within milliseconds, and 0.5 s is short for a user
_PROCESS_BYTES = 8
_CONNECT_LIMIT_S = 5.0  # enough for two lost SYNs (1 s and 2 s later); then another attempt


class Connector:
    """Opens connections from a node to the others of its plan."""

    def __init__(self, setup: NodeSetup) -> None:
        self._setup, self._plan, self._node = setup, setup.plan, setup.name
        self._addresses, self._credentials = setup.addresses, setup.credentials
        self._process = secrets.token_bytes(_PROCESS_BYTES)

    async def connect(
        self, to: str, purpose: str, is_gone: Callable[[], bool] = lambda: False
    ) -> tuple[ByteStream, Keys] | None:
        """A connected and authenticated stream, and its keys; None if ``is_gone`` after a failed attempt.

        Raises ``RunFailed`` if ``to`` refuses this node, or could not be reached until the rendezvous has ended.
        """
        loop, limit_s = asyncio.get_running_loop(), self._plan.timeouts.rendezvous_s
        pause_s, end_s = _FIRST_PAUSE_S, loop.time() + limit_s
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
            if purpose == DATA and self._setup.shares_memory(to):
                async with asyncio.timeout(limit_s):
                    stream = await offer(sock, keys)
            on_failure.pop_all()
        return stream, keys
