"""The delay line: delay, loss and reordering for kernels without netem, with NFQUEUE, in a separate process.

A packet filter rule in the namespace where packets arrive puts them into a queue of the kernel. This process receives
only their identifiers (copy mode META). It accepts a packet that arrives at t with delay d at t + d; one batch verdict
("accept all up to this identifier") releases all packets that are due, in order. HTB on the sending router's port makes
the rate, so a packet first queues and then propagates, as on a real link. Without this process no packet passes (the
rule has no ``--queue-bypass``): a failure breaks the link and never silently removes its delay.

Run as ``python -m emulation.shaping.delay_line`` with JSON on its standard input; prints ``ready``.
Protocol: linux/netfilter/nfnetlink_queue.h.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from emulation.helpers import prepare_child
from emulation.namespaces import enlarge_buffers, inside
from emulation.netlink import NETLINK_NETFILTER, NetlinkSocket, attribute
from emulation.shaping.path import Fate, PacketFates, change_seed
from emulation.shaping.table import DelayField, DelayTable, path_in

QUEUE_PACKETS = 200_000  # the kernel's default of 1024 is below a WAN's bandwidth-delay product
PRIORITY = 50  # SCHED_FIFO, above trace replay (40) and measuring (20): a late release is a longer delay
_SUBSYSTEM = 3 << 8
_VERDICT = 1
_CONFIG = 2
_VERDICT_BATCH = 3
_DROP = 0
_ACCEPT = 1
_SOL_NETLINK = 270
_NO_ENOBUFS = 5
# linux/sock_diag.h
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_RECEIVE_BYTES = 64 << 20  # of the netlink socket: bursts must not overflow it while this process is busy
_BATCH = 256  # packets taken before due ones are released again
_verdict = struct.Struct("=IHHIIBBHHH")
LATE_NS = 1_000_000  # a packet released later than this counts as late


class Line:
    """A first-in-first-out delay line over packet identifiers. ``cells`` is the link's row of the shared table.

    Packets that arrive together are due together, so an entry of ``waiting`` is (when due, last identifier, count).
    When the delay shrinks, later packets wait for earlier ones: packet i is due at max over j <= i of t_j + d_j, so the
    line never reorders.
    """

    def __init__(self, cells: memoryview, seed: str) -> None:
        """``seed``: the seed of the link, which determines the fates of its packets."""
        self.cells = cells
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.early: list[int] = []  # packets of the last ``arrive`` that skip the delay
        self._seed = seed
        self._changes = 0
        self._fates = PacketFates(path_in(cells), 0)

    def arrive(self, identities: Sequence[int], now_ns: int) -> list[int]:
        """Take packets that arrived together, in order; return the lost ones. Sets ``early``."""
        cells = self.cells
        cells[DelayField.PACKETS] += len(identities)
        if cells[DelayField.CHANGES] != self._changes:
            self._changes = cells[DelayField.CHANGES]
            seed = change_seed(self._seed, self._changes)
            self._fates = PacketFates(path_in(cells), seed, self._fates.in_burst)
        lost: list[int] = []
        self.early = []
        kept = identities
        if self._fates.any:
            fates = [(identity, self._fates.next()) for identity in identities]
            lost = [identity for identity, fate in fates if fate is Fate.LOST]
            self.early = [identity for identity, fate in fates if fate is Fate.EARLY]
            kept = [identity for identity, fate in fates if fate is Fate.DELAYED]
            cells[DelayField.LOST] += len(lost)
        if kept:
            before_ns = self.waiting[-1][0] if self.waiting else 0
            self.waiting.append((max(before_ns, now_ns + cells[DelayField.DELAY_NS]), kept[-1], len(kept)))
        return lost

    def release(self, now_ns: int) -> int | None:
        """Remove the packets that are due; return the identifier of the last of them, or ``None`` if none is due."""
        waiting = self.waiting
        last = None
        cells = self.cells
        while waiting and waiting[0][0] <= now_ns:
            due, last, count = waiting.popleft()
            late = now_ns - due
            if late > LATE_NS:
                cells[DelayField.LATE_COUNT] += count
                cells[DelayField.LATE_MAX_NS] = max(late, cells[DelayField.LATE_MAX_NS])
        return last

    def next_due_ns(self) -> int | None:
        """Return when the next packet is due; ``None`` if none waits."""
        return self.waiting[0][0] if self.waiting else None


@dataclass(frozen=True, slots=True)
class LineSpec:
    """One link: the namespace where its packets arrive, its queue there, its row of the table, and its seed."""

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
        enlarge_buffers(self.socket, _RECEIVE_BYTES)
        self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)  # go on after an overflow; see ``overflows``
        self._configure(attribute(1, struct.pack(">BBH", 1, 0, socket.AF_INET)))  # bind
        self._configure(attribute(2, struct.pack(">IB", 0, 1)))  # copy mode META
        self._configure(attribute(3, struct.pack(">I", QUEUE_PACKETS)))
        self._configure(
            attribute(5, struct.pack(">I", 4)) + attribute(4, struct.pack(">I", 4))
        )  # keep GSO packets whole
        self.socket.setblocking(False)

    def _configure(self, data: bytes) -> None:
        self._link.request(_SUBSYSTEM | _CONFIG, struct.pack("=BBH", 0, 0, self._queue) + data)

    def overflows(self) -> int:
        """Return how many packets were lost so far because this process was too slow for the kernel."""
        counters = self.socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 64)
        return int(struct.unpack_from("=9I", counters)[_MEMINFO_DROPS])

    def accept_up_to(self, identity: int) -> None:
        """Let all packets up to ``identity`` pass, in the order of their arrival."""
        self._send(_VERDICT_BATCH, _ACCEPT, identity)

    def accept(self, identity: int) -> None:
        """Let one packet pass, before those that arrived earlier."""
        self._send(_VERDICT, _ACCEPT, identity)

    def drop(self, identity: int) -> None:
        self._send(_VERDICT, _DROP, identity)

    def _send(self, kind: int, verdict: int, identity: int) -> None:
        header = _verdict.pack(32, _SUBSYSTEM | kind, 1, 0, 0, 0, 0, self._queue, 12, 2)
        self.socket.send(header + struct.pack(">II", verdict, identity))


class DelayLine:
    """All lines of one process and the loop over them."""

    def __init__(self, table: DelayTable, specs: list[LineSpec]) -> None:
        self._poll = select.epoll()  # made first: select(2) takes only low descriptors, and there may be many lines
        self._lines = [
            (PacketQueue(spec.namespace, spec.queue), Line(table.row(spec.row), spec.seed)) for spec in specs
        ]
        self._by_descriptor = {queue.socket.fileno(): (queue, line) for queue, line in self._lines}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.EPOLLIN)

    def run(self) -> None:
        """Serve all lines, and never return: a signal ends the process, and the kernel drops waiting packets."""
        while True:
            next_due = self._release(time.monotonic_ns())
            left_s = None if next_due is None else max(0, next_due - time.monotonic_ns()) / 1e9
            select.select([self._poll], [], [], left_s)  # exact to the microsecond; epoll_wait takes milliseconds
            for descriptor, _ in self._poll.poll(0):
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
    """Take the packets that have arrived. A packet's identifier is at byte 24, as its header is the first attribute."""
    receive = queue.socket.recv_into
    now_ns = time.monotonic_ns()
    identities: list[int] = []
    try:
        for _ in range(_BATCH):
            receive(_buffer)
            identities.append(_identity(_buffer, 24)[0])
    except BlockingIOError:
        pass
    if len(identities) == _BATCH:  # the queue may have overflowed; then the monitor and the fidelity report say so
        line.cells[DelayField.OVERFLOWS] = queue.overflows()
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
