"""Ctrl-C, SIGTERM and the end of the terminal: every verb leaves its files in order, whatever ends it."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Interrupts:
    """Count of Ctrl-C, SIGTERM and SIGHUP. While ``deferred`` they are only counted: results are being written."""

    count: int = 0
    terminated: bool = False
    deferred: bool = False

    def take(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.count += 1
        self.terminated |= number != signal.SIGINT
        if number == signal.SIGHUP:
            _leave_terminal()
        if not self.deferred:
            raise KeyboardInterrupt(signal.Signals(number).name)

    def admit(self) -> None:
        """Defer no longer. Raise ``KeyboardInterrupt`` for what was deferred."""
        self.deferred = False
        if self.count:
            raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Write to nowhere what would go to a terminal: it has been closed, and every write would be an error."""
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), descriptor)


@contextmanager
def take_interrupts() -> Iterator[Interrupts]:
    """Raise ``KeyboardInterrupt`` with the signal's name for each of them, unless the caller defers them.

    Only the main thread gets signals; elsewhere this changes nothing.
    """
    taken = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield taken
        return
    before = {number: signal.signal(number, taken.take) for number in _numbers()}
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _numbers() -> tuple[signal.Signals, ...]:
    both = (signal.SIGINT, signal.SIGTERM)
    below_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # where a run outlives its terminal
    return both if below_nohup else (*both, signal.SIGHUP)
