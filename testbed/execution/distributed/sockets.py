"""TCP connections of this process that a library opened: their ends, and how many bytes they have received.

Libraries report neither, so both come from the kernel: the ends from ``getsockname`` and ``getpeername``, the bytes
from ``TCP_INFO``.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.realtime.sockets import TcpInfo

Place = tuple[str, int]
Ends = tuple[Place, Place]  # of a connection: ours, theirs


@dataclass(frozen=True, slots=True)
class Counted:
    """One connection and the payload bytes received on it. ``ends[1][1]`` is 0 for a listening socket."""

    ends: Ends
    received_bytes: int


def connections() -> dict[int, Counted]:
    """Return all TCP sockets over IPv4 of this process, by descriptor."""
    descriptors = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return {number: counted for number in descriptors if (counted := _inspect(number)) is not None}


def _inspect(descriptor: int) -> Counted | None:
    try:
        copy = os.dup(descriptor)
    except OSError:  # the directory's own descriptor, closed by now
        return None
    try:
        sock = socket.socket(fileno=copy)
    except OSError:  # no socket
        os.close(copy)
        return None
    with sock:
        if sock.family != socket.AF_INET or sock.type != socket.SOCK_STREAM:
            return None
        try:
            theirs: Place = sock.getpeername()
        except OSError:
            theirs = ("", 0)
        return Counted((sock.getsockname(), theirs), TcpInfo.of(sock).received_bytes)


def listening() -> set[Place]:
    return {counted.ends[0] for counted in connections().values() if counted.ends[1][1] == 0}


class Meter:
    """Counts bytes received between calls. ``peers``: the worker at the other end of each connection.

    It holds duplicates of the descriptors: a library closes its descriptor as soon as the other worker closes its end,
    which after the last sum may be before this worker has read the counters.
    """

    def __init__(self, peers: Mapping[Ends, str]) -> None:
        self._sockets: list[tuple[socket.socket, str]] = []
        weakref.finalize(self, _close, self._sockets)
        self._seen: list[int] = []
        for descriptor, counted in connections().items():
            if counted.ends in peers:
                self._sockets.append((socket.socket(fileno=os.dup(descriptor)), peers[counted.ends]))
                self._seen.append(counted.received_bytes)

    def since_last(self) -> dict[str, int]:
        """Return the bytes received since the last call, by peer; peers that sent nothing are left out."""
        came: dict[str, int] = {}
        for number, (sock, peer) in enumerate(self._sockets):
            received = TcpInfo.of(sock).received_bytes
            new, self._seen[number] = received - self._seen[number], received
            if new:
                came[peer] = came.get(peer, 0) + new
        return came


def _close(sockets: list[tuple[socket.socket, str]]) -> None:
    for sock, _ in sockets:
        sock.close()
