"""What becomes of each packet on its way, drawn as the kernel's netem draws it: both lose the same packets of a link.

The generator is the kernel's ``prandom_u32_state``: L'Ecuyer's LFSR113 ("Tables of maximally equidistributed combined
LFSR generators", Mathematics of Computation 68, 1999). Draws come in the order of ``netem_enqueue``
(net/sched/sch_netem.c, which takes a seed from Linux 6.7 on): loss, corruption, reordering. Loss in bursts is Gilbert's
two-state model (see ``path.gilbert``): two draws a packet, of which the first decides about the next packet's state.

Only here a burst goes on after a change of the link: netem ends it at each, be it a change of the delay. Under jitter
it so loses fewer packets than planned (``install.cut_bursts``), and not the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum

from emulation.shaping.path import Path, gilbert, share32

_MASK = 0xFFFFFFFF


class Fate(Enum):
    """What becomes of a packet. ``EARLY``: it skips the delay, and overtakes others."""

    DELAYED = 0
    LOST = 1
    EARLY = 2


def change_seed(link_seed: str, change: int) -> int:
    """Return the 64-bit seed of a link's packets from a change of its delay or losses on, counted from 1."""
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
    """Decides packet by packet, from one change of a link to the next."""

    def __init__(self, path: Path, seed: int, in_burst: bool = False) -> None:
        """``in_burst``: of losses, before this change."""
        self._draw = kernel_random(seed)
        self._loss, self._corruption = share32(path.loss), share32(path.corruption)
        self._reordering = share32(path.reordering)
        self._bursty, self.in_burst = path.bursty, path.bursty and in_burst
        enter, leave = gilbert(path.loss, path.burst) if path.bursty else (0.0, 0.0)
        self._enter, self._leave = share32(enter), share32(leave)
        self.any = any((self._loss, self._corruption, self._reordering))

    def next(self) -> Fate:
        """Return what becomes of the next packet.

        One with a wrong bit is lost: the receiver's checksum finds it.
        """
        if self._loses():
            return Fate.LOST
        spoilt = self._corruption and self._draw() <= self._corruption
        early = self._reordering and self._draw() <= self._reordering
        return Fate.LOST if spoilt else Fate.EARLY if early else Fate.DELAYED

    def _loses(self) -> bool:
        if not self._bursty:
            return self._loss > 0 and self._draw() <= self._loss
        lost, change = self.in_burst, self._draw()
        self.in_burst = change >= self._leave if lost else change < self._enter
        self._draw()  # netem asks whether this packet is lost; here each is in the bad state, and none in the good one
        return lost
