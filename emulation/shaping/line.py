"""The delay of one link direction, without kernel or clock: packets in, packets that are due out, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from emulation.shaping.loss import LossModel
from emulation.shaping.table import PARTS_PER_BILLION, DelayField

LATE_NS = 1_000_000  # a packet released later than this counts as late


class Line:
    """A first-in-first-out delay line over packet identifiers. ``cells`` is the link's row of the shared table.

    Packets that arrive together are due together, so an entry of ``waiting`` is (when due, last identifier, count).
    When the delay shrinks, later packets wait for earlier ones: packet i is released at max over j <= i of t_j + d_j,
    so the line never reorders.
    """

    def __init__(self, cells: memoryview, seed: int | str) -> None:
        self.cells = cells
        self.waiting: deque[tuple[int, int, int]] = deque()
        self._loss = LossModel(seed)
        self._overtaking = LossModel(f"{seed}/reordering")
        self._corruption = LossModel(f"{seed}/corruption")
        self.early: list[int] = []  # of the packets of the last ``arrive``, those that skip the delay
        self._loss_setting = (0, 0)

    def arrive(self, identities: Sequence[int], now_ns: int) -> list[int]:
        """Take packets that arrived together, in order; return those that are lost. Sets ``early``.

        A corrupted packet counts as lost here: one flipped bit fails the receiver's checksum in any case.
        """
        cells = self.cells
        cells[DelayField.PACKETS] += len(identities)
        lost = self._lost(identities) if cells[DelayField.LOSS_PPB] else []
        if cells[DelayField.CORRUPT_PPB]:
            lost += self._drawn(
                self._corruption, DelayField.CORRUPT_PPB, [each for each in identities if each not in lost]
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

    def _lost(self, identities: Sequence[int]) -> list[int]:
        setting = (self.cells[DelayField.LOSS_PPB], self.cells[DelayField.BURST_MILLI])
        if setting != self._loss_setting:
            self._loss.set(min(1.0, setting[0] / PARTS_PER_BILLION), setting[1] / 1e3)
            self._loss_setting = setting
        return [identity for identity in identities if self._loss.lost()]

    def _drawn(self, model: LossModel, column: DelayField, identities: Sequence[int]) -> list[int]:
        """Return a random selection, with the share that ``column`` holds."""
        share = self.cells[column] / PARTS_PER_BILLION
        if share != model.loss:
            model.set(share)
        return [identity for identity in identities if model.lost()]
