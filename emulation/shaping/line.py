"""One direction of a delayed link, without kernel or clock: packets in, packets due out, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from emulation.shaping.loss import LossModel
from emulation.shaping.table import PARTS_PER_BILLION, DelayField

LATE_NS = 1_000_000


class Line:
    """A first-in-first-out delay line over packet identities. ``cells`` is the line's row of the shared table.

    Packets that arrive together are due together, so an entry of ``waiting`` is (when due, last identity, how many).
    A delay that shrinks lets later packets wait for earlier ones: the line drains, it never reorders.
    """

    def __init__(self, cells: memoryview, seed: int | str) -> None:
        self.cells = cells
        self.waiting: deque[tuple[int, int, int]] = deque()
        self._loss = LossModel(seed)
        self._overtaking = LossModel(f"{seed}/reordering")
        self._spoiling = LossModel(f"{seed}/corruption")
        self.early: list[int] = []  # of the packets that arrived last, those that skip the delay
        self._loss_setting = (0, 0)

    def arrive(self, identities: Sequence[int], now_ns: int) -> list[int]:
        """Take packets that arrived together, in order; return those that are lost. ``early`` then holds others.

        A packet with a wrong bit is lost: it would go on to its receiver, whose checksum finds every single one.
        """
        cells = self.cells
        cells[DelayField.PACKETS] += len(identities)
        lost = self._lost(identities) if cells[DelayField.LOSS_PPB] else []
        if cells[DelayField.CORRUPT_PPB]:
            lost += self._drawn(
                self._spoiling, DelayField.CORRUPT_PPB, [each for each in identities if each not in lost]
            )
        kept = [identity for identity in identities if identity not in lost] if lost else identities
        cells[DelayField.LOST] += len(lost)
        self.early = (
            self._drawn(self._overtaking, DelayField.REORDER_PPB, kept) if cells[DelayField.REORDER_PPB] else []
        )
        if self.early:
            kept = [identity for identity in kept if identity not in self.early]
        if kept:
            self.waiting.append((now_ns + cells[DelayField.DELAY_NS], kept[-1], len(kept)))
            cells[DelayField.WAITING] += len(kept)
        return lost

    def release(self, now_ns: int) -> int | None:
        """Identity of the last packet due, with which all before it are due too; None if none is."""
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
        return self.waiting[0][0] if self.waiting else None

    def _lost(self, identities: Sequence[int]) -> list[int]:
        setting = (self.cells[DelayField.LOSS_PPB], self.cells[DelayField.BURST_MILLI])
        if setting != self._loss_setting:
            self._loss.set(min(1.0, setting[0] / PARTS_PER_BILLION), setting[1] / 1e3)
            self._loss_setting = setting
        return [identity for identity in identities if self._loss.lost()]

    def _drawn(self, model: LossModel, column: DelayField, identities: Sequence[int]) -> list[int]:
        """The share of them that the column says."""
        share = self.cells[column] / PARTS_PER_BILLION
        if share != model.loss:
            model.set(share)
        return [identity for identity in identities if model.lost()]
