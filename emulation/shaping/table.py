"""Settings and counters of delay lines, in memory that the processes of an emulation share.

One row per link direction, one 64-bit integer per column. The replay and the shell write settings, the delay line
writes counters, and the monitor reads them. No lock is needed: aligned 64-bit stores are atomic, a process writes only
the settings that it changes, and a delay line takes new settings when ``CHANGES``, which is written last, has changed.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum

from emulation.shaping.path import Path


class DelayField(IntEnum):
    """Columns of the table."""

    DELAY_NS = 0
    LOSS_PPB = 1
    BURST_MILLI = 2
    PACKETS = 3
    LOST = 4
    LATE_MAX_NS = 6
    LATE_COUNT = 7  # packets released more than a millisecond late
    OVERFLOWS = 8  # packets that the kernel could not hand over
    REORDER_PPB = 9
    CORRUPT_PPB = 10
    CHANGES = 11  # number of changes of the settings, by all processes
    DOWN = 12  # 1: the link loses all packets, whatever the other settings are
    DUPLICATE_PPB = 13


_COLUMNS = 16
_SETTINGS = {  # by the field of ``Path``: the column, and its unit
    "delay_s": (DelayField.DELAY_NS, 1e9),
    "loss": (DelayField.LOSS_PPB, 1e9),
    "burst": (DelayField.BURST_MILLI, 1e3),
    "corruption": (DelayField.CORRUPT_PPB, 1e9),
    "duplication": (DelayField.DUPLICATE_PPB, 1e9),
    "reordering": (DelayField.REORDER_PPB, 1e9),
}


def change_path(cells: memoryview, **values: float) -> int:
    """Write fields of the ``Path`` of a row's link; return the number of changes so far, this one included."""
    for name, value in values.items():
        column, unit = _SETTINGS[name]
        cells[column] = round(value * unit)
    return _changed(cells)


def set_up(cells: memoryview, up: bool) -> int:
    """Take a row's link up or down; return the number of changes so far, this one included."""
    cells[DelayField.DOWN] = int(not up)
    return _changed(cells)


def _changed(cells: memoryview) -> int:
    cells[DelayField.CHANGES] += 1
    return int(cells[DelayField.CHANGES])


def path_in(cells: memoryview) -> Path:
    """Return the path of a row's link: as set or, while the link is down, one that loses all packets."""
    path = Path(**{name: cells[column] / unit for name, (column, unit) in _SETTINGS.items()})
    return path.down() if cells[DelayField.DOWN] else path


class DelayTable:
    """``DelayTable(fd, rows)`` maps an inherited file; ``DelayTable.create(rows)`` makes an anonymous one."""

    def __init__(self, descriptor: int, rows: int) -> None:
        self.descriptor = descriptor
        self.rows = rows
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
        self._cells.release()
        self._memory.close()
        os.close(self.descriptor)
