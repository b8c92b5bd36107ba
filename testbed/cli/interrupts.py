"""Handles Ctrl-C, SIGTERM and the end of the terminal, so that a verb leaves its files in order whatever ends it."""

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
    """Counts Ctrl-C, SIGTERM and SIGHUP. While ``deferred``, they are only counted, as results are being written."""

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
        """Stop deferring. Raise ``KeyboardInterrupt`` if there have been any interrupts."""
        self.deferred = False
        if self.count:
            raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Redirect output from the closed terminal to ``/dev/null``, as every write to the terminal would fail."""
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), descriptor)


@contextmanager
def take_interrupts() -> Iterator[Interrupts]:
    """Raise ``KeyboardInterrupt`` with the signal's name for each interrupt in the block, unless the caller defers it.

    Only the main thread gets signals; in other threads, this changes nothing.
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
    below_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # the run is meant to outlive its terminal
    return both if below_nohup else (*both, signal.SIGHUP)
