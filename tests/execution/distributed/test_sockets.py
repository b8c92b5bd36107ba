"""Bytes on connections of a library, also on those that it has closed."""

from __future__ import annotations

import gc
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.execution.distributed.sockets import Meter, connections, listening


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname() in listening()
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
        with theirs, ours:
            yield ours, theirs


def meter(ours: socket.socket) -> Meter:
    return Meter({(ours.getsockname(), ours.getpeername()): "b/worker0"})


def test_bytes_are_counted_between_calls(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"before")
    ours.recv(6)
    counter = meter(ours)
    for size in (1000, 70_000):
        theirs.sendall(bytes(size))
        ours.recv(size, socket.MSG_WAITALL)
        assert counter.since_last() == {"b/worker0": size}
    assert counter.since_last() == {}


@pytest.mark.parametrize("reset", [False, True])
def test_what_came_before_both_ends_were_closed_is_counted(
    pair: tuple[socket.socket, socket.socket], reset: bool
) -> None:
    """Gloo resets its connections when the group is done with, and closes those that are reset."""
    ours, theirs = pair
    counter = meter(ours)
    theirs.sendall(bytes(1000))
    ours.recv(1000, socket.MSG_WAITALL)
    if reset:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    number = ours.fileno()
    ours.close()
    with socket.create_server(("127.0.0.1", 0)) as reused:
        assert reused.fileno() == number or number not in connections()
        assert counter.since_last() == {"b/worker0": 1000 + (not reset)}  # the end of the stream is one
        assert counter.since_last() == {}


def descriptors_of(sock: socket.socket) -> int:
    """How many descriptors of this process are this socket."""
    inode = os.fstat(sock.fileno()).st_ino
    return sum(os.fstat(int(path.name)).st_ino == inode for path in Path("/proc/self/fd").iterdir() if path.exists())


def test_its_duplicates_are_closed_with_it(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    counter = meter(ours)
    assert descriptors_of(ours) == 2
    del counter
    gc.collect()
    assert descriptors_of(ours) == 1
    ours.close()
    assert theirs.recv(1) == b"", "the connection is closed"
