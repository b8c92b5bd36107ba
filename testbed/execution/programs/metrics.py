"""Metrics that a program reports, as JSON lines on its standard output or in a file; they become events of the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STDOUT = "stdout"
KEYS = ("step", "loss", "accuracy", "samples", "seconds")
_LONGEST_LINE = 1 << 20


class Metrics:
    """Turns lines such as ``{"step": 7, "loss": 0.31}`` into events; other lines are passed over.

    ``accuracy`` is an evaluation. A line with ``loss`` or ``samples``, or without ``accuracy``, is a round that began
    ``seconds`` ago, or with the round before. ``last_step`` and ``last_loss``: of the last round.
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
        if (seconds := numbers["seconds"]) is not None and seconds >= 0:
            self._begin_s = now_s - seconds
        if accuracy is None or loss is not None or samples is not None:
            fields = {"t0": round(self._begin_s, 6), "round": int(step), "loss": loss, "steps": 1, "waited_s": 0.0}
            yield "round", fields | ({} if samples is None else {"samples": int(samples)})
            self.last_step, self.last_loss, self._begin_s = int(step), loss, now_s
        if accuracy is not None:
            yield "evaluate", {"round": int(step), "snapshot_t": round(now_s, 6), "accuracy": accuracy}


class FileTail:
    """The bytes that are appended to a file, which may not exist yet. A file that became shorter is read again."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new(self) -> bytes:
        """Return what was appended since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(0, 2)
                if file.tell() < self._read:
                    self._read = 0
                file.seek(self._read)
                data = file.read()
        except OSError:
            return b""
        self._read += len(data)
        return data


def _object(line: bytes) -> dict[str, Any]:
    if not line.lstrip().startswith(b"{"):
        return {}
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
