"""What links get of background datagrams, which may cross several of them.

Datagrams do not yield to TCP. What a link has no room for is dropped there, and what it loses at random, or while it is
down, does not get to the next link either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.simulation.paths import WanLink

_MOST_PASSES = 100  # where streams cross links in a circle; else each pass settles one link more of each path


@dataclass(slots=True)
class DatagramStream:
    """``path``: numbers of its links. ``rate_bps``: at which it is sent now."""

    path: tuple[int, ...]
    rate_bps: float = 0.0


def asked_bps(streams: Sequence[DatagramStream], links: Sequence[WanLink]) -> dict[int, float]:
    """Return the rate of all datagrams that get to each link of the streams' paths."""
    asked = dict.fromkeys((number for stream in streams for number in stream.path), 0.0)
    for _ in range(_MOST_PASSES):
        before, asked = asked, dict.fromkeys(asked, 0.0)
        for stream in streams:
            rate_bps = stream.rate_bps
            for number in stream.path:
                asked[number] += rate_bps
                rate_bps *= links[number].passing_share(before[number])
        if asked == before:
            break
    return asked
