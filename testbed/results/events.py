"""The event log of a run: one JSON object per line, a file per node, safe against crashes.

Every line has ``t`` (seconds since the run's start, on the run's clock) and ``kind``. Lines are never rewritten, and a
reader ignores a last line without a newline. ``testbed.results.columns`` states the fields of a kind that has a table;
those of the others are in parentheses.

kind        written by
----------  --------------------------------------------------------------------------------------------------------
start       every node, when its role starts
train       the master worker, when training starts
transfer    the receiver of a message, when it has arrived; ``t0``: the sender's clock at the sending. One for all of
            DGT's blocks of a key and round
compute     any node, after some work
wait        any node, after a wait of more than 0 s
round       a worker, when it has the new values of its round
load        a worker with a data cache, when a batch is loaded
threshold   a server with DGT: share of blocks it sends reliably (round, k, loss)
blocks      a global server with DGT, when the next round is complete: its best-effort blocks (source, key, round, sent,
            delivered, late, lost, resent)
update      a global server, when it has applied a key's update
checkpoint  the scheduler, when a checkpoint is complete (round)
held        a server, when it sends a reply that it held; for the first key of a round only
evaluate    the node that evaluates
gossip      a gossiping worker, at every evaluation: 256 numbers of a random projection (round, sketch)
consensus   a gossiping worker, at the end: RMS distance from the mean of all models (round, distance)
final       every node, when its role ends; ``parameters_sha256`` only if it holds parameters
process     every node in the real world, twice a second
interface   an emulated node of a user's program, twice a second and at its end; counters are cumulative
link        the back end's monitor, per WAN link and sample; counters are cumulative
measured    the back end, before training
replay      the trace replay, per change
background  the back end, per entry of the Plan's background traffic, once a second; counters are cumulative (number,
            sent_bytes, received_bytes)
fault       the back end, when a fault of the Plan begins or ends; ``nan`` and ``disk_full``: the node itself
restart     the back end, when all nodes start again (and begins_t, when they do)
epoch       the scheduler, when nodes have joined or left: a new membership epoch
machine     the back end's monitor, once a second
warning     any node; every warning is part of the fidelity report
error       any node
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

HAS_LEFT = "it has left"  # message of an epoch after a node ended its part on purpose


def microseconds(t: float) -> float:
    """Return ``round(t, 6)``, at a third of its cost unless ``t`` is half-way between two microseconds."""
    scaled = t * 1e6
    if 0.0 <= scaled < 1e13:  # above, rounding errors of the product matter
        whole = int(scaled + 0.5)
        if -0.49 < scaled - whole < 0.49:
            return whole / 1e6
    return round(t, 6)


class EventLog:
    """Appends events of one writer to ``<directory>/<name>.jsonl``. One per process; not thread-safe.

    The file is open only during a write, so that a simulation may have more logs than file descriptors.
    """

    def __init__(self, directory: Path, name: str, buffer_bytes: int = 1 << 16) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path, self._limit_bytes = log_path(directory, name), buffer_bytes
        self._path.touch()
        self._lines = bytearray()

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """Append one event. The line is written at ``flush`` or when the buffer is full. NaN becomes ``null``."""
        self.append({"t": round(t, 6), "kind": kind, **fields})

    def append(self, event: dict[str, Any]) -> None:
        """Append an event as a dictionary: ``t``, rounded to microseconds, ``kind``, and its fields."""
        _encoder.encode_into(event, self._lines, -1)
        self._lines += b"\n"
        if len(self._lines) >= self._limit_bytes:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            with open(self._path, "ab", buffering=0) as file:
                file.write(self._lines)
            self._lines.clear()

    def close(self) -> None:
        self.flush()


def _plain(value: Any) -> Any:
    """Convert numbers of numpy and torch to Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be part of an event")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def log_path(directory: Path, name: str) -> Path:
    """Return the file of one writer's events; the '/' of node names becomes '.'."""
    return directory / (name.replace("/", ".") + ".jsonl")
