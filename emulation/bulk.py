"""TCP bulk transfers between nodes, many at once in one thread: the goodput of emulated links."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from emulation.measurement import BuiltNetwork
from emulation.namespaces import inside

_CHUNK_BYTES = 1 << 18
_CONNECT_DEADLINE_S = 10.0
# Payload of a full-sized frame: 1514 bytes less Ethernet 14, IP 20 and TCP 20 with 12 for time stamps.
GOODPUT_SHARE = 1448 / 1514


@dataclass(slots=True)
class BulkTransfer:
    """From a node to a node. ``received``: (CLOCK_MONOTONIC in seconds, bytes so far) at the receiver."""

    name: str
    source_namespace: str
    target_namespace: str
    target: str
    congestion_control: str | None = None
    received: list[tuple[float, int]] = field(default_factory=list)

    @classmethod
    def between(cls, network: BuiltNetwork, source: str, target: str, congestion_control: str | None = None) -> Self:
        """Return the transfer from node ``source`` to node ``target`` of a network that is up."""
        paths = network.namespace_path(source), network.namespace_path(target)
        return cls(f"{source} to {target}", *paths, network.address(target), congestion_control)

    def goodput_bps(self, skip_s: float) -> float:
        """Return the mean payload rate in bit/s after the first ``skip_s`` seconds; 0 if nothing arrived."""
        kept = [sample for sample in self.received if sample[0] >= self.received[0][0] + skip_s]
        if len(kept) < 2:
            return 0.0
        return (kept[-1][1] - kept[0][1]) * 8 / (kept[-1][0] - kept[0][0])


def transfer(transfers: Sequence[BulkTransfer], duration_s: float) -> None:
    """Send as much as TCP lets through on all of ``transfers`` for ``duration_s`` seconds."""
    senders, receivers = zip(*(_connect(each) for each in transfers), strict=True)
    totals = [0] * len(transfers)
    poll = select.poll()
    senders_at = {link.fileno(): link for link in senders}
    receivers_at = {link.fileno(): number for number, link in enumerate(receivers)}
    for link in senders:
        poll.register(link, select.POLLOUT)
    for link in receivers:
        poll.register(link, select.POLLIN)
    payload = bytes(_CHUNK_BYTES)
    try:
        end = time.monotonic() + duration_s
        while (now := time.monotonic()) < end:
            for descriptor, _ in poll.poll((end - now) * 1e3):
                if descriptor in senders_at:
                    _send(senders_at[descriptor], payload)
                else:
                    number = receivers_at[descriptor]
                    totals[number] += _receive(receivers[number])
                    transfers[number].received.append((time.monotonic(), totals[number]))
    finally:
        for link in (*senders, *receivers):
            link.close()


def _connect(each: BulkTransfer) -> tuple[socket.socket, socket.socket]:
    with inside(each.target_namespace):
        listener = socket.socket()
    with inside(each.source_namespace):
        sender = socket.socket()
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.settimeout(_CONNECT_DEADLINE_S)
        listener.bind((each.target, 0))
        listener.listen(1)
        if each.congestion_control:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, each.congestion_control.encode())
        # a large unsent backlog in the socket would arrive after the end of the measurement
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _CHUNK_BYTES)
        sender.settimeout(_CONNECT_DEADLINE_S)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
    sender.setblocking(False)
    receiver.setblocking(False)
    return sender, receiver


def _send(link: socket.socket, payload: bytes) -> None:
    try:
        link.send(payload)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET):
            raise


def _receive(link: socket.socket) -> int:
    """Return the number of bytes read."""
    total = 0
    while True:
        try:
            count = len(link.recv(_CHUNK_BYTES))
        except BlockingIOError:
            return total
        if count == 0:
            return total
        total += count
