"""Delay and impairments of a link, and netem's representations of them. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from emulation.netlink import attribute
from emulation.shaping.loss import gilbert

_WHOLE = 0xFFFFFFFF  # netem's 100 %
# Without a rate, netem releases each packet after its own delay: where a delay falls, packets overtake earlier ones.
# With one, a packet leaves after the one before it. This rate, in bytes per second, is the highest that fits into 32
# bits, and delays a full frame by 0.4 us; the link's own rate is made by HTB.
_ORDERED_BYTES_PER_S = _WHOLE - 1


@dataclass(frozen=True, slots=True)
class Path:
    """What happens to packets after a link's rate. All but ``burst`` and the delay are shares in [0, 1].

    ``burst``: mean length of a burst of losses in packets; 1 means independent losses.
    """

    delay_s: float = 0.0
    loss: float = 0.0
    burst: float = 1.0
    corruption: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0

    @property
    def bursty(self) -> bool:
        """Whether losses follow Gilbert's model rather than being independent."""
        return self.burst > 1 and 0 < self.loss < 1


def share32(share: float) -> int:
    """Return a share as netem's 32-bit fraction."""
    return round(min(max(share, 0.0), 1.0) * _WHOLE)


def netem_text(path: Path) -> str:
    """The arguments of ``tc qdisc … netem`` for a path. ``reorder p`` sends that share at once, without the delay."""
    words = [f"delay {path.delay_s * 1e6:.0f}us rate {_ORDERED_BYTES_PER_S * 8}bit"]
    if path.bursty:
        enter, leave = gilbert(path.loss, path.burst)
        words.append(f"loss gemodel {enter:.7%} {leave:.7%} 100% 0%")
    elif path.loss:
        words.append(f"loss random {path.loss:.7%}")
    for word, share in (
        ("corrupt", path.corruption),
        ("duplicate", path.duplication),
        ("reorder", path.reordering),
    ):
        if share:
            words.append(f"{word} {share:.7%}" + (" gap 1" if word == "reorder" else ""))
    return " ".join(words)


def netem_options(path: Path, limit_packets: int, ticks_per_us: float) -> list[tuple[int, bytes]]:
    """``struct tc_netem_qopt`` (as kind 0) and the attributes after it (linux/pkt_sched.h)."""
    latency_ns = int(path.delay_s * 1e9)
    ticks = min(int(latency_ns / 1e3 * ticks_per_us), _WHOLE)
    simple = 0 if path.bursty else share32(path.loss)
    gap = 1 if path.reordering else 0
    parts = [(0, struct.pack("=IIIIII", ticks, limit_packets, simple, gap, share32(path.duplication), 0))]
    parts.append((10, struct.pack("=q", latency_ns)))
    parts.append((6, struct.pack("=IiIi", _ORDERED_BYTES_PER_S, 0, 0, 0)))
    if path.reordering:
        parts.append((3, struct.pack("=II", share32(path.reordering), 0)))
    parts.append((4, struct.pack("=II", share32(path.corruption), 0)))
    if path.bursty:
        enter, leave = gilbert(path.loss, path.burst)
        model = struct.pack("=IIII", share32(enter), share32(leave), 0, 0)  # in the bad state everything is lost
        parts.append((5, attribute(2, model)))
    return parts
