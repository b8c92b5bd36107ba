"""One fuzzed input: what reads it, what must be so, and what came of it."""

from __future__ import annotations

import os
import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from testbed.errors import TestbedError

LIMIT_S = 5.0
LIMIT_BYTES = 1 << 30


@dataclass(frozen=True)
class Input:
    """An input.

    read      reads it; returns what it accepts
    names     a refusal must contain one of them: the file, or the option, that is refused
    nonsense  why it must be refused; empty if it may be accepted
    check     raises ``AssertionError`` if what was accepted is not what the input says
    refusals  the exceptions that refuse
    """

    read: Callable[[], Any]
    names: tuple[str, ...] = ()
    nonsense: str = ""
    check: Callable[[Any], None] = lambda accepted: None
    refusals: tuple[type[BaseException], ...] = (TestbedError,)


@dataclass(frozen=True)
class Trial:
    """What came of an input. ``outcome``: accepted | refused, or a defect: one of ``DEFECTS``.

    ``peak_bytes``: what the process took at most while it read, above what it had.
    """

    kind: str
    seed: int
    outcome: str
    seconds: float
    peak_bytes: int
    text: str = ""


DEFECTS = ("raised", "unnamed", "nonsense", "hung", "large")


class _Hung(BaseException):
    """The input took the processor for longer than ``LIMIT_S``."""


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise _Hung("".join(traceback.format_stack(frame)[-4:]))

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judge(kind: str, seed: int, made: Input) -> Trial:
    """Read the input, and return what came of it."""
    _forget_peak()
    before_bytes = _peak_bytes()  # the tests that this process has run before have left something
    begin_s = time.monotonic()
    outcome, text = "accepted", ""
    try:
        with _limit(LIMIT_S):
            made.check(made.read())
        if made.nonsense:
            outcome, text = "nonsense", made.nonsense
    except made.refusals as error:
        outcome, text = "refused", str(error)
        if made.names and not any(name in text for name in made.names):
            outcome = "unnamed"
    except _Hung as hung:
        outcome, text = "hung", str(hung)
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__)[-3:])
        outcome, text = "raised", f"{type(error).__name__}: {str(error)[:300]}\n{frames}"
    peak_bytes = _peak_bytes() - before_bytes
    if outcome in ("accepted", "refused") and peak_bytes > LIMIT_BYTES:
        outcome = "large"
    return Trial(kind, seed, outcome, time.monotonic() - begin_s, peak_bytes, text)


def signature(trial: Trial) -> str:
    """Return what two trials of the same defect have in common: its place, or its text without names and numbers."""
    places = re.findall(r'File "([^"]+)", line (\d+)', trial.text)
    if places:
        file, line = places[-1]
        return f"{trial.outcome}: {trial.text.partition(':')[0]} at {Path(file).name}:{line}"
    return f"{trial.outcome}: {re.sub(r'[0-9]+', '0', trial.text)[:60]}"


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak_bytes() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def no_regular_file(path: Path, number: int) -> str:
    """Make something else than a regular file at ``path``, and return what it is."""
    kind = ("fifo", "loop", "folder", "device", "nothing", "hidden loop")[number % 6]
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "hidden loop":
        between = path.with_name("other")
        between.unlink(missing_ok=True)
        between.symlink_to(path.name)
        path.symlink_to(between.name)
    return kind
