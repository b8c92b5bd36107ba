"""Metrics that a program reports, as JSON lines on its standard output or in a file; they become events of the run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEYS = ("step", "loss", "accuracy", "samples", "seconds")
_LONGEST_LINE = 1 << 20


class Metrics:
    """Turns lines such as ``{"step": 7, "loss": 0.31}`` into events; ignores other lines.

    A line with ``accuracy`` reports an evaluation. A line with ``loss`` or ``samples``, or without ``accuracy``,
    reports a round, which began ``seconds`` ago or, without ``seconds``, at the line before. ``last_step`` and
    ``last_loss`` are those of the last round.
    """

    def __init__(self, begin_s: float) -> None:
        self._begin_s = begin_s
        self._rest = b""
        self.last_step: int | None = None
        self.last_loss: float | None = None

    def take(self, data: bytes, now_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield kind and fields of the events in the next bytes of the program's output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        for line in lines:
            yield from self._events(_object(line), now_s)

    def _events(self, line: dict[str, Any], now_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        numbers = {key: _number(line.get(key)) for key in KEYS}
        step, loss, accuracy, samples = (numbers[key] for key in ("step", "loss", "accuracy", "samples"))
        if step is None or not math.isfinite(step):
            return
        begin_s, self._begin_s = self._begin_s, now_s
        if accuracy is None or loss is not None or samples is not None:
            if (seconds := numbers["seconds"]) is not None and 0 <= seconds < math.inf:
                begin_s = now_s - seconds
            fields = {"t0": round(begin_s, 6), "round": int(step), "loss": loss, "steps": 1, "waited_s": 0.0}
            if samples is not None and math.isfinite(samples):
                fields["samples"] = int(samples)
            yield "round", fields
            self.last_step = int(step)
            self.last_loss = loss
        if accuracy is not None:
            yield "evaluate", {"round": int(step), "snapshot_t": round(now_s, 6), "accuracy": accuracy}


class FileTail:
    """Reads the bytes that are appended to a file from now on. The file may not exist yet.

    The present content is skipped, as another run or process wrote it. A file that became shorter is read from its
    beginning; so is an existing file whose first change leaves its size the same, as it was written anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _version(path.stat()) if path.is_file() else None
        self._read = self._before[0] if self._before else 0

    def new(self) -> bytes:
        """Return the bytes appended since the last call."""
        try:
            with open(self._path, "rb") as file:
                version = _version(os.fstat(file.fileno()))
                before = self._before
                if version == before:
                    return b""
                if version[0] < self._read or (before and version[0] == before[0]):
                    self._read = 0
                self._before = None
                file.seek(self._read)
                data = file.read()
        except OSError:
            return b""
        self._read += len(data)
        return data


def _version(about: os.stat_result) -> tuple[int, int]:
    return about.st_size, about.st_mtime_ns


def _object(line: bytes) -> dict[str, Any]:
    if not line.lstrip().startswith(b"{"):
        return {}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return math.inf if value > 0 else -math.inf
