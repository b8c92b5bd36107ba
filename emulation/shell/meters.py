"""Live meters of WAN links: use, queue, drops and losses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulation.shaping.base import LinkCounters, Shaper

_BAR = 24
Sample = tuple[float, "dict[str, LinkCounters]"]


def take(shaper: Shaper) -> Sample:
    """The counters of all links, with the time."""
    return time.monotonic(), shaper.counters()


def lines(before: Sample, now: Sample) -> list[str]:
    """A header and a line for each link, for the time between two samples."""
    elapsed_s = max(now[0] - before[0], 1e-6)
    width = max((len(name) for name in now[1]), default=4)
    shown = [f"{'link':{width}}  {'use':{_BAR}}  {'Mbit/s':>8} {'of':>8} {'queue kB':>9} {'dropped':>8} {'lost':>6}"]
    for name, counters in now[1].items():
        used_bps = (counters.sent_bytes - before[1][name].sent_bytes) * 8 / elapsed_s
        share = used_bps / counters.configured_bps if counters.configured_bps else 0.0
        shown.append(
            f"{name:{width}}  {_bar(share)}  {used_bps / 1e6:8.2f} {counters.configured_bps / 1e6:8.2f}"
            f" {counters.backlog_bytes / 1e3:9.1f} {counters.dropped_packets:8} {counters.lost_packets:6}"
        )
    return shown


def _bar(share: float) -> str:
    full = round(min(max(share, 0.0), 1.0) * _BAR)
    return "#" * full + "." * (_BAR - full)
