"""Priorities at a bottleneck: a byte-limited queue per channel, served in strict order, under one rate.

Channels are recognised by the precedence bits that senders set in the IP header (``testbed.best_effort``). Each band is
an HTB class with a minimal rate of its own, which otherwise borrows from its parent, the link's class; HTB lends to the
lowest ``prio`` first. So a band is served only when those above it are empty, and a link's rate still changes in one
place. Every band has the link's whole queue size. HTB and ``u32`` suffice: ``prio`` and ``flower`` are not needed.
"""

from __future__ import annotations

FIRST_BAND = 0x10  # classes 1:10, 1:11, … and their queues 10:, 11:, …
BANDS = 8
_OWN_RATE = "8kbit"  # HTB demands a rate; a band may send at it regardless of priority, hence a negligible one
_CEILING = "10gbit"  # above any link: the parent's rate limits
_BURST_BYTES = 1600
_QUANTUM_BYTES = 1514
_MASK = 0xE0


def band_lines(interface: str, queue_bytes: int, channels: int) -> list[str]:
    """``tc -batch`` lines below the existing class 1:1. Band b serves channel b, the last one unmarked traffic too."""
    from testbed.best_effort import type_of_service  # imports torch, for which helpers would wait

    lines = []
    for band in range(channels + 1):
        number = f"{FIRST_BAND + band:x}"
        lines += [
            f"class add dev {interface} parent 1:1 classid 1:{number} htb rate {_OWN_RATE} ceil {_CEILING}"
            f" burst {_BURST_BYTES} cburst {_BURST_BYTES} quantum {_QUANTUM_BYTES} prio {band}",
            f"qdisc add dev {interface} parent 1:{number} handle {number}: bfifo limit {queue_bytes}",
        ]
        mark = type_of_service(band, channels)
        if mark:
            lines.append(
                f"filter add dev {interface} parent 1: protocol ip prio {band + 1}"
                f" u32 match u8 {mark:#x} {_MASK:#x} at 1 flowid 1:{number}"
            )
    return lines


def default_class(channels: int) -> str:
    """Return the class of unmarked traffic."""
    return f"{FIRST_BAND + channels:x}"
