"""Priorities at a bottleneck: a byte-limited queue for each channel, served in their order, under one rate.

Traffic is told apart by the precedence bits that senders put into the IP header (``testbed.best_effort``). Each band
is an HTB class that lives on what its parent, the link's class, lends: to the lowest ``prio`` first. So a band is
served only when those above it are empty, and the rate of the link still changes in one place. Kernels without
``prio`` and ``flower`` will do; HTB and ``u32`` are enough. Every band has the link's queue size for itself.
"""

from __future__ import annotations

FIRST_BAND = 0x10  # classes 1:10, 1:11, … and their queues 10:, 11:, …
BANDS = 8
_OWN_RATE = "8kbit"  # HTB wants one; a band sends at it without asking for priority, which is little enough
_CEILING = "10gbit"  # the parent's rate is what limits
_BURST_BYTES = 1600
_QUANTUM_BYTES = 1514
_MASK = 0xE0


def band_lines(interface: str, queue_bytes: int, channels: int) -> list[str]:
    """``tc -batch`` lines below class 1:1, which is there. Band b is channel b; unmarked traffic goes into the last."""
    from testbed.best_effort import type_of_service  # it brings torch, which helper processes must not wait for

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
    """Where unmarked traffic goes."""
    return f"{FIRST_BAND + channels:x}"
