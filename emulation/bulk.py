"""Bulk transfers between network namespaces, many at once in one thread: by TCP, or by datagrams at a link's rate.

TCP shows the goodput of a path. Datagrams show the rate of one link in a fraction of a second, whatever its delay and
losses. The sender first sends as much as the link carries in two waits for arrivals, and then a tenth faster than the
link, so that the link's queue is never empty and grows slowly. The kernel's receive time stamps give the arrival times.
The first frames (the burst that HTB lets an idle link send at once) are left out. The rate is (n - 1) frames over the
time between the first and the last of n frames.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

from emulation.namespaces import enlarge_buffers, inside, socket_in
from testbed.plan.shaping import FRAME_BYTES, burst_bytes

# Payload of a full-sized frame: 1514 bytes less Ethernet 14, IP 20 and TCP 20 with 12 for time stamps.
GOODPUT_SHARE = 1448 / 1514
HEADER_BYTES = 14 + 20 + 8  # Ethernet, IPv4, UDP
PAYLOAD_BYTES = FRAME_BYTES - HEADER_BYTES
WAIT_S = 1e-3  # between two looks at what datagrams are due
_CHUNK_BYTES = 1 << 18
_CHUNK = bytes(_CHUNK_BYTES)
_CONNECT_DEADLINE_S = 10.0
_EXCESS = 1.1
_SO_TIMESTAMPNS = 35
_PORT = 19_797
_BUFFER_BYTES = 8 << 20
_LEAST_FRAMES = 8


class NodeAddresses(Protocol):
    """Namespace and IPv4 address of each node of a network that is up."""

    def namespace_path(self, node_name: str) -> str: ...
    def address(self, node_name: str) -> str: ...


@dataclass(slots=True)
class BulkTransfer:
    """A TCP connection between two namespaces, to the address ``target``, that carries as much as it can.

    received  (CLOCK_MONOTONIC in seconds, payload bytes so far) at the receiver
    """

    name: str
    source_namespace: str
    target_namespace: str
    target: str
    congestion_control: str | None = None
    received: list[tuple[float, int]] = field(default_factory=list)

    @classmethod
    def between(cls, network: NodeAddresses, source: str, target: str, congestion_control: str | None = None) -> Self:
        """Return the transfer from node ``source`` to node ``target`` of a network that is up."""
        paths = network.namespace_path(source), network.namespace_path(target)
        return cls(f"{source} to {target}", *paths, network.address(target), congestion_control)

    def goodput_bps(self, skip_s: float) -> float:
        """Return the mean payload rate in bit/s after the first ``skip_s`` seconds; 0 if nothing arrived."""
        kept = [sample for sample in self.received if sample[0] >= self.received[0][0] + skip_s]
        if len(kept) < 2:
            return 0.0
        return (kept[-1][1] - kept[0][1]) * 8 / (kept[-1][0] - kept[0][0])

    def open(self) -> tuple[socket.socket, socket.socket]:
        """Return the connection's sender and receiver."""
        with inside(self.target_namespace):
            listener = socket.socket()
        with inside(self.source_namespace):
            sender = socket.socket()
        with listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.settimeout(_CONNECT_DEADLINE_S)
            listener.bind((self.target, 0))
            listener.listen(1)
            if self.congestion_control:
                sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.congestion_control.encode())
            # a large unsent backlog in the socket would arrive after the end of the measurement
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _CHUNK_BYTES)
            sender.settimeout(_CONNECT_DEADLINE_S)
            sender.connect(listener.getsockname())
            receiver, _ = listener.accept()
        sender.setblocking(False)
        receiver.setblocking(False)
        return sender, receiver

    def send(self, sender: socket.socket) -> None:
        """Send a chunk, as the socket has room."""
        try:
            sender.send(_CHUNK)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET):
                raise

    def receive(self, receiver: socket.socket) -> None:
        """Read and count all that has arrived."""
        total = self.received[-1][1] if self.received else 0
        while True:
            try:
                count = len(receiver.recv(_CHUNK_BYTES))
            except BlockingIOError:
                break
            if count == 0:
                break
            total += count
        self.received.append((time.monotonic(), total))


@dataclass(slots=True)
class Flood:
    """Datagrams over one link of ``rate_bps``. ``stamps_s``: arrival times of their frames."""

    name: str
    source_namespace: str
    target_namespace: str
    target: str
    rate_bps: float
    stamps_s: list[float] = field(default_factory=list)
    sent: int = 0

    def duration_s(self, at_least_s: float) -> float:
        """Return ``at_least_s``, or the time of the burst and 16 more frames if that is longer."""
        return max(at_least_s, (burst_bytes(self.rate_bps) + 16 * FRAME_BYTES) * 8 / self.rate_bps)

    def due(self, elapsed_s: float) -> int:
        """Return how many frames must have been sent after ``elapsed_s``."""
        due_s = _EXCESS * elapsed_s + 2 * WAIT_S
        return int((self.rate_bps * due_s / 8 + burst_bytes(self.rate_bps)) / FRAME_BYTES) + 2

    def measured_bps(self) -> float | None:
        """Return the rate in bit/s of Ethernet frames; None if too few arrived."""
        skip = max(burst_bytes(self.rate_bps) // FRAME_BYTES + 2, len(self.stamps_s) // 5)
        kept = self.stamps_s[skip:]
        if len(kept) < _LEAST_FRAMES or kept[-1] <= kept[0]:
            return None
        return (len(kept) - 1) * FRAME_BYTES * 8 / (kept[-1] - kept[0])

    def open(self) -> tuple[socket.socket, socket.socket]:
        """Return its sender and receiver."""
        sender = socket_in(self.source_namespace, socket.SOCK_DGRAM)
        enlarge_buffers(sender, _BUFFER_BYTES)
        sender.connect((self.target, _PORT))
        receiver = socket_in(self.target_namespace, socket.SOCK_DGRAM)
        enlarge_buffers(receiver, _BUFFER_BYTES)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.bind((self.target, _PORT))
        return sender, receiver

    def send(self, sender: socket.socket, elapsed_s: float) -> None:
        """Send the frames that are due, as far as the socket has room; a flood may well fill it."""
        due = self.due(elapsed_s)
        try:
            while self.sent < due:
                sender.send(_CHUNK[:PAYLOAD_BYTES])
                self.sent += 1
        except OSError:
            return

    def receive(self, receiver: socket.socket) -> None:
        while True:
            try:
                _, control, _, _ = receiver.recvmsg(PAYLOAD_BYTES, 64)
            except OSError:
                return
            seconds, nanoseconds = struct.unpack("=qq", control[0][2][:16])
            self.stamps_s.append(seconds + nanoseconds / 1e9)


def transfer(transfers: Sequence[BulkTransfer | Flood], duration_s: float, drain_s: float = 0.0) -> None:
    """Send for ``duration_s`` seconds on all of ``transfers``, and receive until ``drain_s`` later."""
    ready: dict[int, Callable[[], None]] = {}
    floods: list[Callable[[float], None]] = []
    poll = select.poll()
    with ExitStack() as opened:
        for each in transfers:
            sender, receiver = map(opened.enter_context, each.open())
            if isinstance(each, Flood):
                floods.append(partial(each.send, sender))
            else:
                ready[sender.fileno()] = partial(each.send, sender)
                poll.register(sender, select.POLLOUT)
            ready[receiver.fileno()] = partial(each.receive, receiver)
            poll.register(receiver, select.POLLIN)
        begin_s = time.monotonic()
        sending_until_s = begin_s + duration_s
        while (left_s := sending_until_s + drain_s - time.monotonic()) > 0:
            floods_now = left_s > drain_s and floods
            if floods_now:
                for send in floods:
                    send(time.monotonic() - begin_s)
            for descriptor, _ in poll.poll(1e3 * (WAIT_S if floods_now else left_s)):
                ready[descriptor]()
