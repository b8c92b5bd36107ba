"""How the emulator shapes a link. It is defined here because predictions of emulated runs need it, too."""

from __future__ import annotations

from testbed.plan.model import EMULATED_LOWEST_RATE_BPS

FRAME_BYTES = 1514


def shaped_bps(rate_bps: float) -> float:
    """Return the rate that emulation gives to a link: at least the lowest possible one (the Plan warns of this)."""
    return max(rate_bps, EMULATED_LOWEST_RATE_BPS)


def burst_bytes(rate_bps: float) -> int:
    """Return the bytes that HTB may send at once: 4 ms worth, at least two frames; beyond 15 kB, only 1 ms worth.

    Smaller bursts reduce the rate when the timer is late; larger ones become visible in the delay of slow links.
    """
    per_ms = rate_bps / 8e3
    return int(min(max(4 * per_ms, 2 * FRAME_BYTES), max(15_000.0, per_ms)))
