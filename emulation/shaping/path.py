"""Delay and impairments of a link, netem's representations of them, and the fate of each packet. Pure functions.

The fates of packets are drawn as the kernel's netem draws them, so both lose the same packets of a link. The generator
is the kernel's ``prandom_u32_state``: L'Ecuyer's LFSR113 ("Tables of maximally equidistributed combined LFSR
generators", Mathematics of Computation 68, 1999). Draws come in the order of ``netem_enqueue``
(net/sched/sch_netem.c, which takes a seed from Linux 6.7 on): loss, corruption, reordering. Loss in bursts follows
Gilbert's two-state model (see ``gilbert``): two draws per packet, the first of which decides the state for the next
packet.

Here a burst continues after a change of the link. netem ends a burst at each change, even of the delay. So with jitter
it loses fewer packets than planned (``install.cut_bursts``), and other ones than a delay line.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from emulation.netlink import attribute, attributes

_WHOLE = _MASK = 0xFFFFFFFF  # netem's 100 %, and the mask of the generator's 32 bits
_QOPT = struct.Struct("=IIIIII")  # latency in ticks, limit in packets, loss, gap, duplication, jitter in ticks
# TCA_NETEM_…
_REORDER = 3
_CORRUPT = 4
_LOSS = 5
_RATE = 6
_LATENCY = 10
_SEED = 14
_GILBERT = 2  # NETEM_LOSS_GE
# Without a rate, netem releases each packet after its own delay, so packets overtake earlier ones when the delay falls.
# With a rate, packets leave in order. This rate, in bytes per second, is the highest that fits into 32 bits, and delays
# a full frame by 0.4 us; HTB makes the link's own rate.
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

    def down(self) -> Path:
        """Return the path of this link when it is down: it loses all packets, and duplicates none."""
        return Path(delay_s=self.delay_s, loss=1.0)


def gilbert(loss: float, burst: float) -> tuple[float, float]:
    """Return p (good to bad) and r (bad to good) for a mean share of losses and a mean burst length in packets.

    Gilbert's two-state model (E. N. Gilbert, "Capacity of a burst-noise channel", BSTJ 1960) with all packets lost in
    the bad state: a burst has 1/r packets on average, and the share of lost packets is p / (p + r). So r = 1/burst and
    p = loss r / (1 - loss).
    """
    leave = 1.0 / burst
    return min(1.0, loss * leave / (1 - loss)) if loss < 1 else 1.0, leave


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
    for word, share in (("corrupt", path.corruption), ("duplicate", path.duplication), ("reorder", path.reordering)):
        if share:
            words.append(f"{word} {share:.7%}" + (" gap 1" if word == "reorder" else ""))
    return " ".join(words)


def netem_options(path: Path, limit_packets: int, ticks_per_us: float, seed: int) -> list[tuple[int, bytes]]:
    """``struct tc_netem_qopt`` (as kind 0) and the attributes after it (linux/pkt_sched.h).

    ``seed``: seed of the packets' fates from now on. Kernels before 6.7 ignore it, and draw a seed themselves.
    """
    latency_ns = int(path.delay_s * 1e9)
    ticks = min(int(latency_ns / 1e3 * ticks_per_us), _WHOLE)
    simple = 0 if path.bursty else share32(path.loss)
    gap = 1 if path.reordering else 0
    parts = [(0, _QOPT.pack(ticks, limit_packets, simple, gap, share32(path.duplication), 0))]
    parts.append((_LATENCY, struct.pack("=q", latency_ns)))
    parts.append((_RATE, struct.pack("=IiIi", _ORDERED_BYTES_PER_S, 0, 0, 0)))
    if path.reordering:
        parts.append((_REORDER, struct.pack("=II", share32(path.reordering), 0)))
    parts.append((_CORRUPT, struct.pack("=II", share32(path.corruption), 0)))
    if path.bursty:
        enter, leave = gilbert(path.loss, path.burst)
        model = struct.pack("=IIII", share32(enter), share32(leave), 0, 0)  # in the bad state everything is lost
        parts.append((_LOSS, attribute(_GILBERT, model)))
    parts.append((_SEED, struct.pack("=Q", seed)))
    return parts


def path_of_netem(options: bytes) -> Path:
    """Return the path of netem's options as the kernel reports them. Inverse of ``netem_options``."""
    _, _, loss, gap, duplicate, _ = _QOPT.unpack_from(options)
    found = attributes(options[_QOPT.size :])
    path = Path(
        delay_s=struct.unpack("=q", found[_LATENCY])[0] / 1e9,
        loss=loss / _WHOLE,
        duplication=duplicate / _WHOLE,
        corruption=struct.unpack_from("=I", found[_CORRUPT])[0] / _WHOLE,
        reordering=struct.unpack_from("=I", found[_REORDER])[0] / _WHOLE if gap else 0.0,
    )
    model = attributes(found[_LOSS]).get(_GILBERT) if _LOSS in found else None
    if model is None:
        return path
    enter, leave = (share / _WHOLE for share in struct.unpack_from("=II", model))
    return replace(path, loss=enter / (enter + leave), burst=1 / leave)


def as_netem(path: Path) -> Path:
    """Return the path that netem really makes: its shares have 32 bits, and Gilbert's model limits bursts."""
    (_, head), *others = netem_options(path, 0, 1.0, 0)
    return path_of_netem(head + b"".join(attribute(kind, data) for kind, data in others))


class Fate(Enum):
    """The fate of a packet. ``EARLY``: it skips the delay and overtakes others."""

    DELAYED = 0
    LOST = 1
    EARLY = 2


def change_seed(link_seed: str, change: int) -> int:
    """Return the 64-bit seed for a link's packets from its change number ``change`` on. Changes count from 1."""
    return int.from_bytes(hashlib.sha256(f"{link_seed}/{change}".encode()).digest()[:8], "little")


def kernel_random(seed: int) -> Callable[[], int]:
    """Return a function whose values are those of ``prandom_u32_state`` after ``prandom_seed_state`` with ``seed``."""
    mixed = ((seed >> 32) ^ (seed << 10) ^ seed) & _MASK
    one, two, three, four = (mixed + least if mixed < least else mixed for least in (2, 8, 16, 128))

    def draw() -> int:
        nonlocal one, two, three, four
        one = ((one & 0xFFFFFFFE) << 18 & _MASK) ^ (((one << 6 & _MASK) ^ one) >> 13)
        two = ((two & 0xFFFFFFF8) << 2 & _MASK) ^ (((two << 2 & _MASK) ^ two) >> 27)
        three = ((three & 0xFFFFFFF0) << 7 & _MASK) ^ (((three << 13 & _MASK) ^ three) >> 21)
        four = ((four & 0xFFFFFF80) << 13 & _MASK) ^ (((four << 3 & _MASK) ^ four) >> 12)
        return one ^ two ^ three ^ four

    return draw


class PacketFates:
    """Decides the fate of each packet from one change of a link to the next."""

    def __init__(self, path: Path, seed: int, in_burst: bool = False) -> None:
        """``in_burst``: whether the link was in a burst of losses before this change."""
        self._draw = kernel_random(seed)
        self._loss = share32(path.loss)
        self._corruption = share32(path.corruption)
        self._reordering = share32(path.reordering)
        self._bursty = path.bursty
        self.in_burst = path.bursty and in_burst
        enter, leave = gilbert(path.loss, path.burst) if path.bursty else (0.0, 0.0)
        self._enter = share32(enter)
        self._leave = share32(leave)
        self.any = any((self._loss, self._corruption, self._reordering))

    def next(self) -> Fate:
        """Return the fate of the next packet.

        A corrupted packet counts as lost, as the receiver's checksum detects it.
        """
        if self._loses():
            return Fate.LOST
        spoilt = self._corruption and self._draw() <= self._corruption
        early = self._reordering and self._draw() <= self._reordering
        return Fate.LOST if spoilt else Fate.EARLY if early else Fate.DELAYED

    def _loses(self) -> bool:
        if not self._bursty:
            return self._loss > 0 and self._draw() <= self._loss
        lost = self.in_burst
        change = self._draw()
        self.in_burst = change >= self._leave if lost else change < self._enter
        self._draw()  # netem draws whether this packet is lost; here all are in the bad state, and none in the good one
        return lost
