"""How the emulator shapes a link: known here, as predictions of emulated runs need it, too."""

from __future__ import annotations

from testbed.plan.model import EMULATED_LOWEST_RATE_BPS

FRAME_BYTES = 1514


def shaped_bps(rate_bps: float) -> float:
    """Return the rate that a link of this rate gets: the Plan warns of those that are slower than can be emulated."""
    return max(rate_bps, EMULATED_LOWEST_RATE_BPS)


def burst_bytes(rate_bps: float) -> int:
    """What HTB may send at once: 4 ms worth, but two frames at least; above 15 kB only 1 ms worth.

    Smaller bursts lose rate when the timer is late, larger ones show in the delay of slow links.
    """
    per_ms = rate_bps / 8e3
    return int(min(max(4 * per_ms, 2 * FRAME_BYTES), max(15_000.0, per_ms)))
