"""What a connection takes from its queue to be written, and what overtakes the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import torch

from testbed.realtime.auth import DATA, Keys
from testbed.realtime.connection import Connection
from testbed.realtime.send_queue import SendQueue
from testbed.realtime.stream import ByteStream
from testbed.realtime.tls import WOULD_BLOCK
from testbed.settings.run import Transport

KEYS = Keys(b"o" * 32, b"i" * 32)
FRAME_BYTES = 8_000


class Narrow(ByteStream):
    """A stream without a code that takes ``room_bytes`` and then no more until there is room again."""

    private = True

    def __init__(self) -> None:
        self.room_bytes, self.written = 0, bytearray()
        self.write: Callable[[], None] | None = None

    def sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        if not self.room_bytes:
            raise WOULD_BLOCK[0]
        data = b"".join(bytes(buffer) for buffer in buffers)[: self.room_bytes]
        self.room_bytes -= len(data)
        self.written += data
        return len(data)

    def on_writable(self, call: Callable[[], None] | None) -> None:
        self.write = call

    def on_readable(self, call: Callable[[], None] | None) -> None:
        """Nothing arrives."""

    def close(self) -> None:
        """Nothing is open."""

    def tcp_info(self) -> None:
        return None


def place_of_urgent(transport: Transport) -> int:
    """Return how many of forty frames leave before one that is queued when a byte has been written."""

    async def run() -> int:
        stream, queue = Narrow(), SendQueue(1 << 30)
        connection = Connection(stream, "peer", DATA, queue, handler=None)  # type: ignore[arg-type]  # not called
        for number in range(40):
            queue.post(f"frame-{number:02}".encode(), (torch.full((FRAME_BYTES,), number, dtype=torch.uint8),))
        stream.room_bytes = 1
        connection.start(KEYS, transport, 0)
        await asyncio.sleep(0)
        assert len(stream.written) == 1 and stream.write is not None
        queue.post(b"the urgent one", priority=1)
        stream.room_bytes = 1 << 30
        while stream.write is not None:
            stream.write()
        place = stream.written.index(b"the urgent one")
        assert all(f"frame-{number:02}".encode() in stream.written for number in range(40))
        return sum(stream.written.index(f"frame-{number:02}".encode()) < place for number in range(40))

    return asyncio.run(run())


def test_what_is_urgent_waits_for_one_batch() -> None:
    assert place_of_urgent(Transport()) == 9, "of 8 kB each, 64 KiB"


def test_a_batch_is_no_longer_than_what_the_kernel_may_hold() -> None:
    assert place_of_urgent(Transport(unsent_limit_bytes=16_384)) == 3


def test_many_batches_leave_in_one_turn_of_the_loop() -> None:
    """A connection whose frames are small is as fast as one whose frames are large."""

    async def run() -> int:
        stream, queue = Narrow(), SendQueue(1 << 30)
        connection = Connection(stream, "peer", DATA, queue, handler=None)  # type: ignore[arg-type]  # not called
        for _ in range(1000):
            queue.post(b"frame", (torch.zeros(FRAME_BYTES, dtype=torch.uint8),))
        stream.room_bytes = 1 << 30
        connection.start(KEYS, Transport(), 0)
        await asyncio.sleep(0)
        return len(stream.written)

    assert 900_000 < asyncio.run(run()) < 1_200_000
