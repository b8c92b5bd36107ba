"""Settings and counters of delay lines, in memory that the processes of an emulation share.

One row per link direction, one 64-bit integer per column. The replay writes settings, the delay line writes counters,
the monitor reads them. Aligned 64-bit stores are atomic; a delay line takes new settings when ``CHANGES``, which is
written last, has changed. So no lock is needed.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum

from emulation.shaping.path import Path

PARTS_PER_BILLION = 1_000_000_000


class DelayField(IntEnum):
    """Columns of the table."""

    DELAY_NS = 0
    LOSS_PPB = 1
    BURST_MILLI = 2
    PACKETS = 3
    LOST = 4
    WAITING = 5
    LATE_MAX_NS = 6
    LATE_COUNT = 7  # packets released more than a millisecond late
    OVERFLOWS = 8  # times that the kernel could not hand packets over
    REORDER_PPB = 9
    CORRUPT_PPB = 10
    CHANGES = 11  # of the settings, by whichever process


_COLUMNS = 16
_SHARES = {
    "loss": DelayField.LOSS_PPB, "corruption": DelayField.CORRUPT_PPB, "reordering": DelayField.REORDER_PPB
}  # fmt: skip


def set_path(cells: memoryview, path: Path) -> int:
    """Write what a row's link does to packets; return the number of changes so far, this one included."""
    for name, column in _SHARES.items():
        cells[column] = round(getattr(path, name) * PARTS_PER_BILLION)
    cells[DelayField.BURST_MILLI] = round(path.burst * 1e3)
    cells[DelayField.DELAY_NS] = round(path.delay_s * 1e9)
    cells[DelayField.CHANGES] += 1
    return int(cells[DelayField.CHANGES])


def path_in(cells: memoryview) -> Path:
    """Return what a row's link does to packets. Inverse of ``set_path``."""
    shares = {name: cells[column] / PARTS_PER_BILLION for name, column in _SHARES.items()}
    return Path(delay_s=cells[DelayField.DELAY_NS] / 1e9, burst=cells[DelayField.BURST_MILLI] / 1e3, **shares)


class DelayTable:
    """``DelayTable(fd, rows)`` maps an inherited file; ``DelayTable.create(rows)`` makes an anonymous one."""

    def __init__(self, descriptor: int, rows: int) -> None:
        self.descriptor, self.rows = descriptor, rows
        self._memory = mmap.mmap(descriptor, max(rows, 1) * _COLUMNS * 8)
        self._cells = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls, rows: int) -> DelayTable:
        """Return a table of zeros."""
        descriptor = os.memfd_create("delay-line")
        os.ftruncate(descriptor, max(rows, 1) * _COLUMNS * 8)
        return cls(descriptor, rows)

    def row(self, row: int) -> memoryview:
        """Return the row's cells, indexed by ``DelayField``."""
        return self._cells[row * _COLUMNS : (row + 1) * _COLUMNS]

    def close(self) -> None:
        """Unmap the table and close its descriptor."""
        self._cells.release()
        self._memory.close()
        os.close(self.descriptor)
