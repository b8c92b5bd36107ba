"""Descriptors whose numbers ``select(2)`` does not take, as a process with a thousand peers has."""

from __future__ import annotations

import fcntl
import os
import resource
import socket

FIRST = 1500


def high(descriptor: int) -> int:
    """Return a copy of a descriptor that has such a number, and close the descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= 2 * FIRST:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * FIRST, hard), hard))
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST)
    finally:
        os.close(descriptor)


def high_pair() -> tuple[socket.socket, socket.socket]:
    """Return two sockets that are connected."""
    one, other = socket.socketpair()
    return socket.socket(fileno=high(one.detach())), socket.socket(fileno=high(other.detach()))
