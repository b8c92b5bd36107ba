"""The event log of a run: one JSON object per line, compressed by gzip, safe against crashes.

A process writes ``events/<writer>.<part>.jsonl.gz``. Every line has ``t`` (seconds since the run's start, on the run's
clock), ``kind`` and ``node``, its writer. Nothing is rewritten: after ``PART_BYTES`` of lines, and in a new process of
a node, a new part begins. Processes that end by an error, or by a signal that can be handled, write all their lines;
after SIGKILL those are there that are more than half a second old. A reader takes a file whose end is missing, and
ignores a last line without a newline.
``testbed events RUN`` prints the events of a run, and ``zcat`` and ``zgrep`` read the files.

``testbed.results.columns`` states the fields of a kind that has a table; those of the others are in parentheses.

kind        written by
----------  --------------------------------------------------------------------------------------------------------
start       every node, when its role starts
train       the master worker, when training starts
transfer    the receiver of a message, when it has arrived; ``t0``: the sender's clock at the sending. One for all of
            DGT's blocks of a key and round
compute     any node, after some work
wait        any node, after a wait of more than 0 s
round       a worker, when it has the new values of its round
stage       a worker of a pipeline, before it trains: its segments, and its tasks in order
load        a worker with a data cache, when a batch is loaded
threshold   a server with DGT: share of blocks it sends reliably (round, k, loss)
blocks      a global server with DGT, when the next round is complete: its best-effort blocks (source, key, round, sent,
            delivered, late, lost, resent)
update      a global server, when it has applied a key's update
checkpoint  the scheduler, when a checkpoint is complete (round)
held        a server, when it sends a reply that it held; for the first key of a round only
evaluate    the node that evaluates
consensus   the node that evaluates, of gossip: RMS distance of all models from their mean, which is scored (round,
            distance)
final       every node, when its role ends; ``parameters_sha256`` only if it holds parameters;
            ``not_finite``: how many of these are NaN or infinite, if any
process     every node in the real world, twice a second
interface   an emulated node of a user's program, twice a second and at its end; counters are cumulative
link        the back end's monitor, per WAN link and sample; counters are cumulative
probe       the monitor of an emulated network, ten times a second from the moment that it is up until the first
            ``link``, per WAN link that carries something; counters are cumulative, and no result counts them
measured    the back end, before training
path        the driver of a deployment, before and after training; a node, when a connection to another data centre ends
replay      the trace replay, per change
background  the back end, per entry of the Plan's background traffic, once a second; counters are cumulative (number,
            sent_bytes, received_bytes)
fault       the back end, when a fault of the Plan begins or ends; ``nan``, ``disk_full``, ``attack``: the node itself
restart     the back end, when all nodes start again (and begins_t, when they do)
epoch       the scheduler, when nodes have joined or left: a new membership epoch; also where a run begins with a
            checkpoint, of nodes that were lost or had left before
machine     the back end's monitor, once a second
warning     any node; every warning is part of the fidelity report
error       any node
"""

from __future__ import annotations

import functools
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

PART_BYTES = 4 << 20  # of lines, before compression
FLUSH_INTERVAL_S = 0.4
_BUFFER_BYTES = 1 << 16
_TOGETHER = 256  # events, which are some 60 KB of lines
_LEVEL = 2  # 330 MB of lines in a second, where 3 takes a third longer to save a tenth
_GZIP = zlib.MAX_WBITS | 16
_PART = re.compile(r"(?P<writer>.+)\.(?P<part>\d+)\.jsonl\.gz")

STOPPED = "stopped"  # cause in the ``error`` event of a node that was ended, and did not fail itself
DOUBT = "doubt"  # cause in the ``warning`` event of a simulation whose prediction may be off
NO_STEP = "no step"  # cause in the ``warning`` event of a script that ends without a training step
NOT_EXCHANGED = "not exchanged"  # likewise, with local steps after its last exchange
NOT_FINISHED = "not finished"  # likewise, whose last score is of a model that others may have changed since
EVALUATING = "the evaluation to end"  # what a worker waits for whose next round depends on a score
BLOCKS_AHEAD = "blocks for"  # so begins what a push waits for until it may be sent in blocks
HAS_LEFT = "it has left"  # message of an epoch after a node ended its part on purpose
WAS_LOST = "it was lost before the run went on from a checkpoint"  # likewise, of a node that takes no part again


@functools.lru_cache(maxsize=1024)  # what begins at an instant, others end at
def microseconds(t: float) -> float:
    """Return ``round(t, 6)``, at a third of its cost unless ``t`` is half-way between two microseconds."""
    scaled = t * 1e6
    if 0.0 <= scaled < 1e13:  # above, rounding errors of the product matter
        whole = int(scaled + 0.5)
        if -0.49 < scaled - whole < 0.49:
            return whole / 1e6
    return round(t, 6)


class Transfer(msgspec.Struct, gc=False):
    """A ``transfer`` event, which is made and written in half the time of a dictionary: a run has millions of them."""

    t: float
    kind: str
    node: str
    t0: float
    source: str
    target: str
    message: str
    key: int
    round: int
    payload_bytes: int
    header_bytes: int
    tier: str


class EventLog:
    """Appends the events of one writer to a file of events; threads may share it.

    ``beside``: another log of this process, into whose file the events go. Events are in the file when they are
    ``FLUSH_INTERVAL_S`` old and another one comes, at ``flush``, and at ``close``. With ``many``, for a writer of
    millions of events that uses ``flushed``, an event (a dictionary, or a Struct with these fields) is only kept, and
    must not change any more. ``encode``, to be called now and then, encodes many together.
    """

    def __init__(self, directory: Path, name: str, beside: EventLog | None = None, many: bool = False) -> None:
        self.node = name
        self._file: _EventFile = _EventFile(directory, name) if beside is None else beside._file
        # no methods, which would cost a call for each of millions of events
        self.append: Callable[[Any], None] = self._file.events.append if many else self._file.append
        if beside is not None:
            self.append = beside.append

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """Append one event. NaN becomes ``null``."""
        self.append({"t": round(t, 6), "kind": kind, "node": self.node, **fields})

    def encode(self) -> None:
        """Encode the events that are kept, if they are many; see ``many``."""
        self._file.encode()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Write what is left and end the file; the next event begins another part."""
        self._file.close()


@contextmanager
def flushed(log: EventLog) -> Iterator[None]:
    """Flush the log every ``FLUSH_INTERVAL_S`` while the block runs, however long its computations are."""
    ended = threading.Event()

    def flush() -> None:
        while not ended.wait(FLUSH_INTERVAL_S):
            with suppress(OSError):  # the next flush of the block raises it
                log.flush()

    thread = threading.Thread(target=flush, name="events", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _EventFile:
    """The parts of one file of events. A part is open only during a write, so that forks inherit no descriptor."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = name.replace("/", ".")
        self._lock = threading.Lock()
        self._lines = bytearray()
        self.events: list[Any] = []  # yet to be encoded
        self._part = 0  # the next number
        self._path: Path | None = None  # of the part that is being written: it is made with its first lines
        self._bytes = 0  # of its lines
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._due_s = time.monotonic() + FLUSH_INTERVAL_S  # the time of the next flush

    def append(self, event: dict[str, Any]) -> None:
        """Append an event as a dictionary: ``t``, rounded to microseconds, ``kind``, ``node``, and its fields."""
        with self._lock:
            lines = self._lines
            try:
                _encode_into(event, lines, -1)
            except UnicodeEncodeError:
                del lines[lines.rfind(b"\n") + 1 :]  # what it has written of the event
                _encode_into(_escaped(event), lines, -1)
            lines += b"\n"
            if len(lines) >= _BUFFER_BYTES or time.monotonic() >= self._due_s:
                self._flush()

    def encode(self) -> None:
        """Encode what is in ``events``, if that is much."""
        if len(self.events) >= _TOGETHER:
            with self._lock:
                self._encode()
                if len(self._lines) >= _BUFFER_BYTES:
                    self._flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def close(self) -> None:
        with self._lock:
            self._flush()
            self._end_part()

    def _encode(self) -> None:
        batch = self.events[:]  # to which another thread may append meanwhile
        try:
            self._lines += _encode_lines(batch)
        except UnicodeEncodeError:
            self._lines += _encode_lines([_escaped(each) if isinstance(each, dict) else each for each in batch])
        del self.events[: len(batch)]

    def _flush(self) -> None:
        if self.events:
            self._encode()
        self._due_s = time.monotonic() + FLUSH_INTERVAL_S
        if not self._lines:
            return
        if self._path is None:
            self._path = self._new_part()
        try:
            self._write(self._deflate.compress(self._lines) + self._deflate.flush(zlib.Z_SYNC_FLUSH))
        except OSError:  # what follows goes to a part that is whole
            self._begin_part()
            raise
        self._bytes += len(self._lines)
        self._lines.clear()
        if self._bytes >= PART_BYTES:
            self._end_part()

    def _end_part(self) -> None:
        if self._path is not None:
            try:
                self._write(self._deflate.flush())
            finally:  # its stream has ended, and takes nothing more
                self._begin_part()

    def _begin_part(self) -> None:
        self._path = None
        self._bytes = 0
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)

    def _write(self, data: bytes) -> None:
        """Append all of ``data``, or nothing: what a full disk has taken of it would be read a second time."""
        assert self._path is not None
        try:
            with open(self._path, "ab", buffering=0) as file:
                end = file.tell()
                try:
                    while data:  # a disk that becomes full takes a part first, without an error
                        data = data[file.write(data) :]
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            error.filename = str(self._path)
            raise

    def _new_part(self) -> Path:
        """Make the first part that is not there yet: an earlier process of this node may have written some."""
        while True:
            path = self._directory / f"{self._name}.{self._part:04}.jsonl.gz"
            self._part += 1
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            return path


class PartReader:
    """Reads one part of a file of events, again and again while it grows. ``damaged``: its end could not be read.

    ``ended``: no more lines will come.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._inflate = zlib.decompressobj(_GZIP)
        self._rest = b""
        self.damaged = False

    @property
    def ended(self) -> bool:
        return self.damaged or self._inflate.eof

    def lines(self) -> bytes:
        """Return the whole lines that have been written since the last call."""
        with open(self._path, "rb") as file:
            file.seek(self._place)
            data = file.read()
        self._place += len(data)
        read = [self._rest]
        for at in range(0, len(data), _BUFFER_BYTES):  # so that what precedes damage is kept
            if self.damaged:
                break
            try:
                read.append(self._inflate.decompress(data[at : at + _BUFFER_BYTES]))
            except zlib.error:
                self.damaged = True
        text = b"".join(read)
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        whole = text[:end]
        return whole if whole.isascii() else whole.decode(errors="replace").encode()  # damage may be no UTF-8


def parts(directory: Path) -> list[Path]:
    """Return the files of events in a directory, by writer, and those of a writer in their order."""
    found = [
        (match["writer"], int(match["part"]), path)
        for path in directory.glob("*.jsonl.gz")
        if (match := _PART.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, _, path in sorted(found)]


def writer_of(part: Path) -> str:
    """Return the name of the log that a file of events belongs to."""
    match = _PART.fullmatch(part.name)
    assert match is not None, part
    return match["writer"].replace(".", "/")


def read(directory: Path, node: str = "") -> Iterator[dict[str, Any]]:
    """Yield all events of a directory, or those of one node, file by file. Leave out lines that are damaged."""
    for path in parts(directory):
        for event in decoded(PartReader(path).lines().splitlines()):
            if isinstance(event.get("node"), str) and (not node or event["node"] == node):
                yield event


def decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events of lines. Leave out those that are damaged, which the tables report."""
    for line in lines:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(event, dict):
            yield event


def _escaped(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event that can be written: bytes of paths that are not UTF-8 become escapes, as in other files."""
    return {
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in event.items()
    }


def _plain(value: Any) -> Any:
    """Convert numbers of numpy and torch to Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be part of an event")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_encode_into = _encoder.encode_into
_encode_lines = _encoder.encode_lines
