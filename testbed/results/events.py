"""The event log of a run: one JSON object per line per node, safe against crashes, and the list of its kinds.

Every line has ``t`` (seconds since the run's start, the run's one clock) and ``kind``. A reader ignores a last line
without a newline. Lines are never rewritten.

kind        fields (beside ``t``)                                    written by
----------  -------------------------------------------------------  ------------------------------------------
start       role, data_center, pid, stands_for                       every node, when its role starts; stands_for:
                                                                     how many folded nodes it is, in simulation
train       rounds, workers                                      master worker, at the start of training
transfer    t0, source, target, message, key, round, payload_bytes,  the receiver of a message, when it has arrived;
            header_bytes, tier                                       t0: sender's clock at send; tier: "lan" or "wan".
                                                                     DGT's blocks get one for all of a key and round
compute     t0, work, round, modelled_s, real_s, overrun             any node; work as in ``testbed.world.Work``
wait        t0, waiting_for, round                                   any node; a wait that took longer than 0
round       t0, round, loss, samples, steps, waited_s                worker, when its round's new values are in
load        t0, round, step, waited_s, memory, disk, neighbour,       worker with a data cache, when a batch is there;
            remote                                                   where its samples came from since the last one
threshold   round, k, loss                                           server, DGT: share of blocks it sends reliably
blocks      source, key, round, sent, delivered, late, lost, resent  global server, DGT: account of a round's best-
                                                                     effort blocks, once the next round is closed
update      key, round, version, contributors, staleness             global server, when it has applied a key's update;
                                                                    staleness: updates since its sender was last sent it
checkpoint  round                                                    scheduler, when a checkpoint is whole
held        round, member, held_s, by                                server, when it answers a push that had to wait:
                                                                   ``member`` waited held_s for ``by``; of its first key
evaluate    round, epoch, accuracy, loss, snapshot_t                 who holds the model; snapshot_t: age of its values
gossip      round, sketch                                            gossiping worker, at every evaluation; 256 numbers
consensus   round, distance                                          gossiping worker, at the end: RMS distance from the
                                                                     average of all models
final       role, rounds, parameters_sha256 (if it holds any),   every node, when its role ends; cpu_s: processor
            cpu_s                                                    time of its process since then (real worlds)
process     cpu_s                                                    every node, twice a second (real worlds): processor
                                                                     time of its process so far
link        link, configured_bps, bytes, dropped_packets,            the back end's monitor, per WAN link per sample;
            backlog_bytes                                            counters are cumulative
measured    link or path, what, planned, measured, tolerance, ok     the back end, before training
replay      link, planned_t, late_s, what, value                     the trace replay, per change
background  number, sent_bytes, received_bytes                       the back end, per entry of the Plan's background,
                                                                     once a second; counters are cumulative
fault       fault, targets, begins, planned_t, late_s                the back end, when a fault of the Plan begins or is
                                                                     over; nan and disk_full: the node itself
restart     number, message, begins_t                                the back end: all begin anew at begins_t, because
                                                                     of message
epoch       number, targets, begins, message                         scheduler: targets have joined (begins) or left
machine     busy_share, steal_share                                  the back end's monitor, once a second
warning     message                                                  anybody; each becomes a fidelity warning
error       message, cause                                           anybody
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

HAS_LEFT = "it has left"  # message of an epoch that somebody made in good order


def microseconds(t: float) -> float:
    """``round(t, 6)`` of a time, for a third of its cost where ``t`` is not half-way between two microseconds."""
    scaled = t * 1e6
    if 0.0 <= scaled < 1e13:  # where that is exact enough to tell
        whole = int(scaled + 0.5)
        if -0.49 < scaled - whole < 0.49:
            return whole / 1e6
    return round(t, 6)


class EventLog:
    """Appends events of one writer to ``<directory>/<name>.jsonl``. One per process; not thread-safe.

    The file is open only while lines are written to it, so that a simulation may have more logs than descriptors.
    """

    def __init__(self, directory: Path, name: str, buffer_bytes: int = 1 << 16) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path, self._limit_bytes = log_path(directory, name), buffer_bytes
        self._path.touch()
        self._lines = bytearray()

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """Append one event. The line reaches the file at ``flush`` or when the buffer is full. NaN becomes ``null``."""
        self.append({"t": round(t, 6), "kind": kind, **fields})

    def append(self, event: dict[str, Any]) -> None:
        """As ``write``, of a whole event: ``t``, rounded to microseconds, ``kind``, and its fields."""
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
    """Numbers of numpy and torch as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot stand in an event")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def log_path(directory: Path, name: str) -> Path:
    """File of one writer's events; the '/' of node names becomes '.'."""
    return directory / (name.replace("/", ".") + ".jsonl")
