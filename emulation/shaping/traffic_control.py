"""Queueing disciplines: the ``tc`` lines that create them, and netlink messages that change and read them live.

Rate: HTB with one class, and below it a ``bfifo`` with the plan's queue size in bytes, on the egress port of a gateway,
router or switch; never on a sending host's own port, where TCP small queues would keep the queue from filling.
HTB sends a burst at once after an idle time (``testbed.plan.shaping.burst_bytes``): it is large enough that a timer
which is late by a scheduler tick loses no rate, and small enough to stay within the tolerance of delays. TBF would need
its own queue in place of the ``bfifo``, and cannot hold classes for priorities.
Delay and loss, where the kernel has netem: on another port further down the path, so that a packet first queues for the
link's rate and then propagates. In one qdisc, netem's own queue would count delayed packets as queued.
Priorities: each best-effort channel has a band, an HTB class below the link's with a byte-limited queue of its own. It
is recognised by the precedence bits that senders set in the IP header (``testbed.best_effort``), has a minimal rate of
its own, and otherwise borrows from the link's class; HTB lends to the lowest ``prio`` first. So a band is served only
when those above it are empty, and a link's rate still changes in one place. HTB and ``u32`` suffice: ``prio`` and
``flower`` are not needed.
Kernel structures: linux/pkt_sched.h, linux/gen_stats.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import add
from pathlib import Path as FilePath
from typing import NamedTuple

from emulation.netlink import NetlinkSocket, attribute, attributes
from emulation.shaping.path import Path, netem_options, netem_text, path_of_netem
from testbed.plan.model import EMULATED_LOWEST_RATE_BPS
from testbed.plan.shaping import FRAME_BYTES, burst_bytes

QUANTUM_BYTES = 15_000  # what a class may send before another gets its turn; here there is one per priority
ROOT_HANDLE = 0x10000  # "1:"
CLASS_HANDLE = 0x10001
ROOT_PARENT = 0xFFFFFFFF
# HTB keeps a packet's debt in time: at 64 kbit/s one frame blocks the class for 0.19 s, at 1 kbit/s for 12 s, during
# which a change of the rate has no effect. The plan warns where a link would be slower.
LOWEST_RATE_BPS = EMULATED_LOWEST_RATE_BPS
_BANDS = range(0x10, 0x18)  # classes 1:10, 1:11, … and their queues 10:, 11:, …
_ROOT = range(1, 2)
_BAND_RATE = "8kbit"  # HTB demands a rate; a band may send at it regardless of priority, hence a negligible one
_BAND_CEILING = "10gbit"  # above any link: the parent's rate limits
_BAND_BURST_BYTES = 1600
_BAND_QUANTUM_BYTES = 1514
_PRECEDENCE = 0xE0

_NEW_QDISC = 36
_GET_QDISC = 38
_NEW_CLASS = 40
_GET_CLASS = 42
_KIND = 1
_OPTIONS = 2
_STATS2 = 7
_tcmsg = struct.Struct("=BBHiIII")


class QueueStatistics(NamedTuple):
    """Counters of a queue: sent, dropped and waiting."""

    sent_bytes: int = 0
    dropped_packets: int = 0
    backlog_bytes: int = 0
    sent_packets: int = 0


def htb_lines(interface: str, rate_bps: float, queue_bytes: int, channels: int = 0) -> list[str]:
    """``tc -batch`` lines that give ``interface`` a rate and a queue, which holds one frame at least.

    ``channels``: best-effort channels beside the reliable one, each with a queue of its own, served by priority.
    """
    rate = int(max(rate_bps, LOWEST_RATE_BPS))
    burst = burst_bytes(rate)
    limit = max(queue_bytes, FRAME_BYTES)
    default = f"{_BANDS[channels]:x}" if channels else "1"  # the class of unmarked traffic
    leaves = [f"qdisc add dev {interface} parent 1:1 handle 10: bfifo limit {limit}"]
    return [
        f"qdisc add dev {interface} root handle 1: htb default {default}",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {rate}bit burst {burst} cburst {burst}"
        f" quantum {QUANTUM_BYTES}",
        *(_band_lines(interface, limit, channels) if channels else leaves),
    ]


def _band_lines(interface: str, queue_bytes: int, channels: int) -> list[str]:
    """Return ``tc -batch`` lines below class 1:1. Band b serves channel b, and the last one also unmarked traffic."""
    from testbed.best_effort import type_of_service  # imports torch, which would delay the start of helpers

    lines = []
    for band in range(channels + 1):
        number = f"{_BANDS[band]:x}"
        lines += [
            f"class add dev {interface} parent 1:1 classid 1:{number} htb rate {_BAND_RATE} ceil {_BAND_CEILING}"
            f" burst {_BAND_BURST_BYTES} cburst {_BAND_BURST_BYTES} quantum {_BAND_QUANTUM_BYTES} prio {band}",
            f"qdisc add dev {interface} parent 1:{number} handle {number}: bfifo limit {queue_bytes}",
        ]
        mark = type_of_service(band, channels)
        if mark:
            lines.append(
                f"filter add dev {interface} parent 1: protocol ip prio {band + 1}"
                f" u32 match u8 {mark:#x} {_PRECEDENCE:#x} at 1 flowid 1:{number}"
            )
    return lines


def netem_line(interface: str, path: Path, limit_packets: int) -> str:
    """``tc`` line that adds netem with the values of ``path`` to ``interface``."""
    return f"qdisc add dev {interface} root handle 1: netem limit {limit_packets} {netem_text(path)}"


def ticks_per_us() -> float:
    """Return the ticks of the kernel's packet-scheduler clock per microsecond, from /proc/net/psched."""
    ticks, per_us = FilePath("/proc/net/psched").read_text().split()[:2]
    return int(ticks, 16) / int(per_us, 16)


_TICKS_PER_US = ticks_per_us() if FilePath("/proc/net/psched").exists() else 15.625


def change_rate(link: NetlinkSocket, index: int, rate_bps: float) -> None:
    """Change the rate of the class; its queue and the packets in it stay."""
    bytes_per_s = int(max(rate_bps, LOWEST_RATE_BPS) / 8)
    burst_ticks = int(burst_bytes(bytes_per_s * 8) / bytes_per_s * 1e6 * _TICKS_PER_US)
    # link layer 1 is Ethernet: then the kernel needs no rate table
    spec = struct.pack("=BBHhHI", 0, 1, 0, -1, 0, min(bytes_per_s, 0xFFFFFFFF))
    parameters = spec + spec + struct.pack("=IIIII", burst_ticks, burst_ticks, QUANTUM_BYTES, 0, 0)
    rate64 = struct.pack("=Q", bytes_per_s)
    options = attribute(1, parameters) + attribute(6, rate64) + attribute(7, rate64)
    body = _tcmsg.pack(0, 0, 0, index, CLASS_HANDLE, ROOT_HANDLE, 0)
    link.request(_NEW_CLASS, body + attribute(_KIND, b"htb\0") + attribute(_OPTIONS, options))


def read_rate_bps(link: NetlinkSocket, index: int) -> float:
    """Return the rate of an interface's HTB class in the kernel. Raise ``LookupError`` without such a class."""
    for body in link.dump(_GET_CLASS, _tcmsg.pack(0, 0, 0, index, 0, 0, 0)):
        if _tcmsg.unpack_from(body)[4] == CLASS_HANDLE:
            options = attributes(attributes(body[_tcmsg.size :])[_OPTIONS])
            if 6 in options:
                return float(struct.unpack("=Q", options[6])[0]) * 8
            return float(struct.unpack_from("=I", options[1], 8)[0]) * 8
    raise LookupError(f"no HTB class on interface {index}")


def read_queues(link: NetlinkSocket) -> dict[int, QueueStatistics]:
    """Return the statistics of the queues below HTB of each interface in a namespace, summed, by interface index."""
    found: dict[int, QueueStatistics] = {}
    for index, _, parts in _qdiscs(link, _BANDS):
        found[index] = QueueStatistics(*map(add, found.get(index, QueueStatistics()), _statistics(parts[_STATS2])))
    return found


def read_netem_drops(link: NetlinkSocket) -> dict[int, int]:
    """Return how many packets each netem of a namespace has lost since it was made, by interface index."""
    return {index: _statistics(parts[_STATS2]).dropped_packets for index, parts in _netems(link)}


def read_netem_paths(link: NetlinkSocket) -> dict[int, Path]:
    """Return the path of each netem of a namespace, by interface index."""
    return {index: path_of_netem(parts[_OPTIONS]) for index, parts in _netems(link)}


def _netems(link: NetlinkSocket) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Yield the interface index and the attributes of each netem of a namespace."""
    for index, _, parts in _qdiscs(link, _ROOT):
        if parts[_KIND].rstrip(b"\0") == b"netem":
            yield index, parts


def read_queue_limits(link: NetlinkSocket, index: int) -> list[int]:
    """Return the limits in bytes of the queues on an interface, one per priority, in their order."""
    options = {handle: parts[_OPTIONS] for at, handle, parts in _qdiscs(link, _BANDS) if at == index}
    return [struct.unpack_from("=I", options[handle])[0] for handle in sorted(options)]


def _qdiscs(link: NetlinkSocket, majors: range) -> Iterator[tuple[int, int, dict[int, bytes]]]:
    """Yield interface index, handle and attributes of a namespace's queueing disciplines of these major numbers."""
    for body in link.dump(_GET_QDISC, _tcmsg.pack(0, 0, 0, 0, 0, 0, 0)):
        _, _, _, index, handle, _, _ = _tcmsg.unpack_from(body)
        if handle >> 16 in majors:
            yield index, handle, attributes(body[_tcmsg.size :])


def _statistics(data: bytes) -> QueueStatistics:
    parts = attributes(data)
    sent_bytes, sent_packets = struct.unpack_from("=QI", parts[1])
    _, backlog, drops, *_ = struct.unpack_from("=IIIII", parts[3])
    return QueueStatistics(sent_bytes, drops, backlog, sent_packets)


def change_netem(link: NetlinkSocket, index: int, path: Path, limit_packets: int, seed: int) -> None:
    """Change the netem parameters of an interface; packets that are being delayed keep their times.

    ``seed``: seed of the fates of packets from now on.
    """
    (_, head), *others = netem_options(path, limit_packets, _TICKS_PER_US, seed)
    options = head + b"".join(attribute(kind, data) for kind, data in others)
    body = _tcmsg.pack(0, 0, 0, index, ROOT_HANDLE, ROOT_PARENT, 0)
    link.request(_NEW_QDISC, body + attribute(_KIND, b"netem\0") + attribute(_OPTIONS, options))
