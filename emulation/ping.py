"""Round-trip times by ICMP echo between many pairs at once, in one thread, by a raw socket in each namespace."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from emulation.namespaces import socket_in

_ECHO_REQUEST = 8
_ECHO_REPLY = 0
_IDENTITY = 0x7473
_STAMP = struct.Struct("=qi")  # in each echo: when it was sent, and the number of its pair
# linux/in.h, linux/icmp.h
_SOL_RAW = 255
_ICMP_FILTER = 1
ECHOES_PER_S = 2500  # of all pairs together: more would fill the delay lines and be measured as delay


@dataclass(slots=True)
class Pair:
    """From a namespace to an address; ``rtts_s``: round-trip times of the answered echoes, in seconds."""

    name: str
    namespace: str
    target: str
    rtts_s: list[float] = field(default_factory=list)


def ping(pairs: Sequence[Pair], count: int, interval_s: float, wait_s: float) -> None:
    """Send ``count`` echoes per pair and collect answers until ``wait_s`` after the last.

    A pair's echoes are ``interval_s`` apart, or further if all pairs together would exceed ``ECHOES_PER_S``.
    """
    # Evenly spread over the interval: echoes sent at the same moment would queue for each other here.
    gap_s = max(interval_s / max(1, len(pairs)), 1 / ECHOES_PER_S)
    total = count * len(pairs)
    with ExitStack() as opened:
        sockets = {namespace: opened.enter_context(_socket(namespace)) for namespace in {p.namespace for p in pairs}}
        begin = time.monotonic()
        by_descriptor = {link.fileno(): link for link in sockets.values()}
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        sent = answered = 0
        while answered < total and time.monotonic() < begin + total * gap_s + wait_s:
            while sent < total and time.monotonic() >= begin + sent * gap_s:
                pair = pairs[sent % len(pairs)]
                _send(sockets[pair.namespace], pair.target, sent % len(pairs))
                sent += 1
            ahead = begin + sent * gap_s - time.monotonic() if sent < total else 0.05
            for descriptor, _ in poll.poll(max(0.0, ahead) * 1e3):
                answered += _collect(by_descriptor[descriptor], pairs)


def _socket(namespace: str) -> socket.socket:
    """Return a socket for all pairs of a namespace: each socket there gets a copy of every answer."""
    link = socket_in(namespace, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    link.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("=I", ~(1 << _ECHO_REPLY) & 0xFFFFFFFF))
    return link


def _send(link: socket.socket, target: str, pair: int) -> None:
    payload = _STAMP.pack(time.monotonic_ns(), pair) + bytes(36)
    head = struct.pack(">BBHHH", _ECHO_REQUEST, 0, 0, _IDENTITY, 0)
    checked = struct.pack(">BBHHH", _ECHO_REQUEST, 0, _checksum(head + payload), _IDENTITY, 0)
    with suppress(OSError):  # no route yet, or a full queue: the echo counts as unanswered
        link.sendto(checked + payload, (target, 0))


def _collect(link: socket.socket, pairs: Sequence[Pair]) -> int:
    collected = 0
    while True:
        try:
            data, (source, _) = link.recvfrom(2048)
        except BlockingIOError:
            return collected
        now_ns = time.monotonic_ns()
        icmp = data[(data[0] & 15) * 4 :]
        if len(icmp) < 8 + _STAMP.size or struct.unpack_from(">H", icmp, 4)[0] != _IDENTITY:
            continue
        sent_ns, number = _STAMP.unpack_from(icmp, 8)
        if number < len(pairs) and source == pairs[number].target:
            pairs[number].rtts_s.append((now_ns - sent_ns) / 1e9)
            collected += 1


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
