"""The delay of one link direction, without kernel or clock: packets in, packets that are due out, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from emulation.shaping.loss import Fate, PacketFates, change_seed
from emulation.shaping.table import DelayField, path_in

LATE_NS = 1_000_000  # a packet released later than this counts as late


class Line:
    """A first-in-first-out delay line over packet identifiers. ``cells`` is the link's row of the shared table.

    Packets that arrive together are due together, so an entry of ``waiting`` is (when due, last identifier, count).
    When the delay shrinks, later packets wait for earlier ones: packet i is released at max over j <= i of t_j + d_j,
    so the line never reorders.
    """

    def __init__(self, cells: memoryview, seed: str) -> None:
        """``seed``: of the link, from which the fates of its packets follow."""
        self.cells = cells
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.early: list[int] = []  # of the packets of the last ``arrive``, those that skip the delay
        self._seed = seed
        self._changes = 0
        self._fates = PacketFates(path_in(cells), 0)

    def arrive(self, identities: Sequence[int], now_ns: int) -> list[int]:
        """Take packets that arrived together, in order; return those that are lost. Sets ``early``."""
        cells = self.cells
        cells[DelayField.PACKETS] += len(identities)
        if cells[DelayField.CHANGES] != self._changes:
            self._changes = cells[DelayField.CHANGES]
            seed = change_seed(self._seed, self._changes)
            self._fates = PacketFates(path_in(cells), seed, self._fates.in_burst)
        lost: list[int] = []
        self.early = []
        kept = identities
        if self._fates.any:
            fates = [(identity, self._fates.next()) for identity in identities]
            lost = [identity for identity, fate in fates if fate is Fate.LOST]
            self.early = [identity for identity, fate in fates if fate is Fate.EARLY]
            kept = [identity for identity, fate in fates if fate is Fate.DELAYED]
            cells[DelayField.LOST] += len(lost)
        if kept:
            self.waiting.append((now_ns + cells[DelayField.DELAY_NS], kept[-1], len(kept)))
            cells[DelayField.WAITING] += len(kept)
        return lost

    def release(self, now_ns: int) -> int | None:
        """Return the identifier of the last packet that is due, as are all before it; ``None`` if none is."""
        waiting, last, cells = self.waiting, None, self.cells
        while waiting and waiting[0][0] <= now_ns:
            due, last, count = waiting.popleft()
            cells[DelayField.WAITING] -= count
            late = now_ns - due
            if late > LATE_NS:
                cells[DelayField.LATE_COUNT] += count
                cells[DelayField.LATE_MAX_NS] = max(late, cells[DelayField.LATE_MAX_NS])
        return last

    def next_due_ns(self) -> int | None:
        """Return when the next packet is due; ``None`` if none waits."""
        return self.waiting[0][0] if self.waiting else None
