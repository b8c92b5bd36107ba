"""One direction of a delayed link, without kernel or clock: packets in, packets due out, in order."""

from __future__ import annotations

from collections import deque

from emulation.shaping.loss import LossModel
from emulation.shaping.table import PARTS_PER_BILLION, Column

LATE_NS = 1_000_000


class Line:
    """A first-in-first-out delay line over packet identities. ``cells`` is the line's row of the shared table.

    A delay that shrinks lets later packets wait for earlier ones: the line drains, it never reorders.
    """

    def __init__(self, cells: memoryview, seed: int | str) -> None:
        self.cells = cells
        self.waiting: deque[tuple[int, int]] = deque()
        self._loss = LossModel(seed)
        self._loss_setting = (0, 0)

    def arrive(self, identity: int, now_ns: int) -> bool:
        """Take a packet; False if it is lost."""
        cells = self.cells
        cells[Column.PACKETS] += 1
        if cells[Column.LOSS_PPB] and self._lost():
            cells[Column.LOST] += 1
            return False
        self.waiting.append((now_ns + cells[Column.DELAY_NS], identity))
        return True

    def release(self, now_ns: int) -> int | None:
        """Identity of the last packet due, with which all before it are due too; None if none is."""
        waiting, last, cells = self.waiting, None, self.cells
        while waiting and waiting[0][0] <= now_ns:
            due, last = waiting.popleft()
            late = now_ns - due
            if late > LATE_NS:
                cells[Column.LATE_COUNT] += 1
                cells[Column.LATE_MAX_NS] = max(late, cells[Column.LATE_MAX_NS])
        cells[Column.WAITING] = len(waiting)
        return last

    def next_due_ns(self) -> int | None:
        return self.waiting[0][0] if self.waiting else None

    def _lost(self) -> bool:
        setting = (self.cells[Column.LOSS_PPB], self.cells[Column.BURST_MILLI])
        if setting != self._loss_setting:
            self._loss.set(min(1.0, setting[0] / PARTS_PER_BILLION), setting[1] / 1e3)
            self._loss_setting = setting
        return self._loss.lost()
