"""Link rates by short UDP floods over many links at once, in one thread, timed by the kernel's receive time stamps.

The flood is a tenth faster than the link and begins with what the link carries in two waits for arrivals, so that the
link's queue is never empty and grows slowly. The first frames (the burst that HTB lets an idle link send at once) are
left out. The rate is (n - 1) frames over the time between the first and the last of n frames.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from emulation.namespaces import enlarge_buffers, socket_in
from testbed.plan.shaping import FRAME_BYTES, burst_bytes

HEADER_BYTES = 14 + 20 + 8  # Ethernet, IPv4, UDP
PAYLOAD_BYTES = FRAME_BYTES - HEADER_BYTES
EXCESS = 1.1
WAIT_S = 1e-3
_SO_TIMESTAMPNS, _PORT = 35, 19_797
_BUFFER_BYTES = 8 << 20
_MIN_PACKETS = 8


@dataclass(slots=True)
class Flood:
    """One link to be measured. ``stamps_s``: arrival times of its frames, each of ``frame_bytes`` bytes.

    A namespace that is on another machine is empty: there the frames are sent, or received.
    """

    name: str
    source_namespace: str
    target_namespace: str
    target: str
    rate_bps: float
    frame_bytes: int = FRAME_BYTES
    stamps_s: list[float] = field(default_factory=list)
    sent: int = 0

    def duration_s(self, at_least_s: float) -> float:
        """Return ``at_least_s``, or the time of the burst and 16 more frames if that is longer."""
        return max(at_least_s, (burst_bytes(self.rate_bps) + 16 * self.frame_bytes) * 8 / self.rate_bps)

    def due(self, elapsed_s: float) -> int:
        """Return how many frames are to be sent by then."""
        due_s = EXCESS * elapsed_s + 2 * WAIT_S
        return int((self.rate_bps * due_s / 8 + burst_bytes(self.rate_bps)) / self.frame_bytes) + 2

    def measured_bps(self) -> float | None:
        """Return the rate in bit/s of Ethernet frames; None if too few arrived."""
        skip = max(burst_bytes(self.rate_bps) // self.frame_bytes + 2, len(self.stamps_s) // 5)
        kept = self.stamps_s[skip:]
        if len(kept) < _MIN_PACKETS or kept[-1] <= kept[0]:
            return None
        return (len(kept) - 1) * self.frame_bytes * 8 / (kept[-1] - kept[0])


def flood(floods: Sequence[Flood], duration_s: float, drain_s: float) -> None:
    """Send over all links for ``duration_s`` seconds, and receive until ``drain_s`` later."""
    senders = {number: _sender(each) for number, each in enumerate(floods) if each.source_namespace}
    receivers = {number: _receiver(each) for number, each in enumerate(floods) if each.target_namespace}
    by_descriptor = {link.fileno(): number for number, link in receivers.items()}
    poll = select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    try:
        begin = time.monotonic()
        end = begin + duration_s
        while (now := time.monotonic()) < end + drain_s:
            if now < end:
                for number, sender in senders.items():
                    _send(floods[number], sender, now - begin)
            for descriptor, _ in poll.poll(1e3 * WAIT_S if now < end else 10):
                _receive(floods[by_descriptor[descriptor]], receivers[by_descriptor[descriptor]])
    finally:
        for link in (*senders.values(), *receivers.values()):
            link.close()


def _sender(each: Flood) -> socket.socket:
    link = socket_in(each.source_namespace, socket.SOCK_DGRAM)
    enlarge_buffers(link, _BUFFER_BYTES)
    link.connect((each.target, _PORT))
    return link


def _receiver(each: Flood) -> socket.socket:
    link = socket_in(each.target_namespace, socket.SOCK_DGRAM)
    enlarge_buffers(link, _BUFFER_BYTES)
    link.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    link.bind((each.target, _PORT))
    return link


def _send(each: Flood, link: socket.socket, elapsed_s: float) -> None:
    due, payload = each.due(elapsed_s), bytes(each.frame_bytes - HEADER_BYTES)
    try:
        while each.sent < due:
            link.send(payload)
            each.sent += 1
    except (BlockingIOError, ConnectionRefusedError, OSError):
        return  # the socket is full, as is expected of a flood


def _receive(each: Flood, link: socket.socket) -> None:
    while True:
        try:
            _, control, _, _ = link.recvmsg(PAYLOAD_BYTES, 64)
        except OSError:
            return
        seconds, nanoseconds = struct.unpack("=qq", control[0][2][:16])
        each.stamps_s.append(seconds + nanoseconds / 1e9)
