"""The delay line: delay, loss and reordering for kernels without netem, by NFQUEUE, in a process of its own.

A packet filter rule in the namespace where packets arrive puts them into a queue of the kernel; only their identifiers
come here (copy mode META). A packet that arrives at t with delay d is due at t + d, and is accepted then; one batch
verdict ("accept all up to this identifier") releases all that are due, in order. The rate is made by HTB on the sending
router's port, so a packet first queues and then propagates, as on a real link. Without this process no packet passes
(the rule has no ``--queue-bypass``): a failure breaks the link and never silently removes its delay.

Run as ``python -m emulation.shaping.delay_line`` with JSON on its standard input; prints ``ready``.
Protocol: linux/netfilter/nfnetlink_queue.h.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from emulation.children import prepare_child
from emulation.namespaces import enlarge_receive_buffer, inside
from emulation.netlink import NETLINK_NETFILTER, NetlinkSocket, attribute
from emulation.shaping.line import Line
from emulation.shaping.table import DelayField, DelayTable

QUEUE_PACKETS = 200_000  # the kernel's default of 1024 is below a WAN's bandwidth-delay product
PRIORITY = 50  # SCHED_FIFO, above trace replay (40) and measuring (20): a late release is a longer delay
_SUBSYSTEM = 3 << 8
_VERDICT, _CONFIG, _VERDICT_BATCH = 1, 2, 3
_DROP, _ACCEPT = 0, 1
_SOL_NETLINK, _NO_ENOBUFS = 270, 5
_RECEIVE_BYTES = 64 << 20  # of the netlink socket: bursts must not overflow it while this process is busy
_BATCH = 256  # packets taken before due ones are released again
_verdict = struct.Struct("=IHHIIBBHHH")


@dataclass(frozen=True, slots=True)
class LineSpec:
    """One link: where its packets arrive, the number of their queue there, and its row of the table."""

    namespace: str
    queue: int
    row: int
    seed: str


class PacketQueue:
    """One NFQUEUE, bound in its namespace."""

    def __init__(self, namespace: str, queue: int) -> None:
        self._queue = socket.htons(queue)
        with inside(namespace):
            self._link = NetlinkSocket(NETLINK_NETFILTER)
        self.socket = self._link.socket
        enlarge_receive_buffer(self.socket, _RECEIVE_BYTES)
        self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)  # after an overflow go on: it is counted, not fatal
        self._configure(attribute(1, struct.pack(">BBH", 1, 0, socket.AF_INET)))  # bind
        self._configure(attribute(2, struct.pack(">IB", 0, 1)))  # copy mode META
        self._configure(attribute(3, struct.pack(">I", QUEUE_PACKETS)))
        self._configure(
            attribute(5, struct.pack(">I", 4)) + attribute(4, struct.pack(">I", 4))
        )  # keep GSO packets whole
        self.socket.setblocking(False)

    def _configure(self, data: bytes) -> None:
        self._link.request(_SUBSYSTEM | _CONFIG, struct.pack("=BBH", 0, 0, self._queue) + data)

    def accept_up_to(self, identity: int) -> None:
        """Let all packets up to ``identity`` pass, in the order of their arrival."""
        self._send(_VERDICT_BATCH, _ACCEPT, identity)

    def accept(self, identity: int) -> None:
        """Let one packet pass, before those that arrived earlier."""
        self._send(_VERDICT, _ACCEPT, identity)

    def drop(self, identity: int) -> None:
        """Drop one packet."""
        self._send(_VERDICT, _DROP, identity)

    def _send(self, kind: int, verdict: int, identity: int) -> None:
        header = _verdict.pack(32, _SUBSYSTEM | kind, 1, 0, 0, 0, 0, self._queue, 12, 2)
        self.socket.send(header + struct.pack(">II", verdict, identity))


class Timer:
    """A timerfd with absolute times of CLOCK_MONOTONIC, as ``epoll_wait`` itself has milliseconds only."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        self._setting = ctypes.create_string_buffer(32)
        self._armed_ns = 0

    def arm(self, at_ns: int) -> None:
        """Make the descriptor readable at ``at_ns``."""
        if at_ns != self._armed_ns:
            struct.pack_into("=qqqq", self._setting, 0, 0, 0, *divmod(at_ns, 1_000_000_000))
            self._libc.timerfd_settime(self.descriptor, 1, self._setting, None)
            self._armed_ns = at_ns

    def expired(self) -> None:
        """Take the expiry; to be called when the descriptor was readable."""
        self._armed_ns = 0
        with suppress(BlockingIOError):
            os.read(self.descriptor, 8)


class DelayLine:
    """All lines of one process and the loop over them."""

    def __init__(self, table: DelayTable, specs: list[LineSpec]) -> None:
        self._lines = [
            (PacketQueue(spec.namespace, spec.queue), Line(table.row(spec.row), spec.seed)) for spec in specs
        ]
        self._by_descriptor = {queue.socket.fileno(): (queue, line) for queue, line in self._lines}
        self._timer = Timer()
        self._poll = select.epoll()
        for descriptor in (*self._by_descriptor, self._timer.descriptor):
            self._poll.register(descriptor, select.EPOLLIN)

    def run(self) -> None:
        """Never return: a signal ends the process, and the kernel drops what waits."""
        while True:
            next_due = self._release(time.monotonic_ns())
            if next_due is not None:
                self._timer.arm(next_due)
            for descriptor, _ in self._poll.poll():
                if descriptor == self._timer.descriptor:
                    self._timer.expired()
                else:
                    _take(*self._by_descriptor[descriptor])

    def _release(self, now_ns: int) -> int | None:
        earliest = None
        for queue, line in self._lines:
            last = line.release(now_ns)
            if last is not None:
                queue.accept_up_to(last)
            due = line.next_due_ns()
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest


_buffer = bytearray(512)
_identity = struct.Struct(">I").unpack_from


def _take(queue: PacketQueue, line: Line) -> None:
    """Take what has arrived. The packet's identifier is at byte 24: its header is the first attribute."""
    receive, now_ns = queue.socket.recv_into, time.monotonic_ns()
    identities: list[int] = []
    try:
        for _ in range(_BATCH):
            receive(_buffer)
            identities.append(_identity(_buffer, 24)[0])
    except BlockingIOError:
        pass
    except OSError:  # ENOBUFS: the kernel could not hand packets over; the monitor warns, the fidelity report has it
        line.cells[DelayField.OVERFLOWS] += 1
    if identities:
        for lost in line.arrive(identities, now_ns):
            queue.drop(lost)
        for early in line.early:
            queue.accept(early)


def main() -> None:
    """Serve the links given on standard input until a signal ends the process."""
    given = json.loads(sys.stdin.readline())
    prepare_child(priority=PRIORITY if given["realtime"] else None)
    table = DelayTable(given["table"], given["rows"])
    line = DelayLine(table, [LineSpec(**spec) for spec in given["lines"]])
    gc.disable()  # nothing here makes reference cycles, and a collection would delay packets
    print("ready", flush=True)  # noqa: T201 - the parent waits for this word
    line.run()


if __name__ == "__main__":
    main()
