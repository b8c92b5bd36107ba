"""The event log of a run: one JSON object per line, compressed by gzip, safe against crashes.

A process writes ``events/<writer>.<part>.jsonl.gz``. Every line has ``t`` (seconds since the run's start, on the run's
clock), ``kind``, and its writer, ``node``. Written lines never change: a new part begins after ``PART_BYTES`` of lines,
and in each new process of a node. A process that ends by an error, or by a signal that it can handle, writes all its
lines. After SIGKILL, lines older than half a second are in the file. Readers accept a file whose end is missing, and
ignore a last line without a newline.
``testbed events RUN`` prints the events of a run; ``zcat`` and ``zgrep`` read the files.

``testbed.results.columns`` states the fields of kinds that have a table. For other kinds, the list below has the fields
in parentheses.

kind        written by
----------  --------------------------------------------------------------------------------------------------------
start       every node, when its role starts
train       the master worker, when training starts
transfer    the receiver of a message, when it has arrived; ``t0`` is the time of sending on the sender's clock. All DGT
            blocks of one key and round share one event
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
consensus   with gossip, the node that evaluates: RMS distance of all models from their mean, which is evaluated (round,
            distance)
final       every node, when its role ends; ``parameters_sha256`` only if it holds parameters;
            ``not_finite`` is the number of NaN or infinite ones, if there are any
process     every node in the real world, twice a second
interface   an emulated node of a user's program, twice a second and at its end; counters are cumulative
link        the back end's monitor, per WAN link and sample; counters are cumulative
probe       the monitor of an emulated network, per WAN link with traffic, ten times a second from the moment when the
            network is up until the first ``link``; counters are cumulative, and results ignore these events
measured    the back end, before training
path        the driver of a deployment, before and after training; a node, when a connection to another data centre ends
replay      the trace replay, per change
background  the back end, per entry of the Plan's background traffic, once a second; counters are cumulative (number,
            sent_bytes, received_bytes)
fault       the back end, when a fault of the Plan begins or ends; ``nan``, ``disk_full``, ``attack``: the node itself
restart     the back end, before all nodes start again (begins_t: the time when they start)
epoch       the scheduler, when nodes have joined or left, which begins a new membership epoch; also for nodes lost or
            gone before the checkpoint with which a run begins
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
_TOGETHER = 256  # events to encode at once: about 60 KB of lines
_LEVEL = 2  # compresses 330 MB of lines per second; level 3 takes a third longer to save a tenth
_GZIP = zlib.MAX_WBITS | 16
_PART = re.compile(r"(?P<writer>.+)\.(?P<part>\d+)\.jsonl\.gz")

STOPPED = "stopped"  # cause in the ``error`` event of a node that was stopped and did not fail itself
DOUBT = "doubt"  # cause in the ``warning`` event of a simulation whose prediction may be wrong
NO_STEP = "no step"  # cause in the ``warning`` event of a script that ends without a training step
NOT_EXCHANGED = "not exchanged"  # likewise, of a script that ends with local steps after its last exchange
NOT_FINISHED = "not finished"  # likewise, of a script whose last score is of a model that others may have changed
EVALUATING = "the evaluation to end"  # name of the wait of a worker whose next round depends on a score
BLOCKS_AHEAD = "blocks for"  # first words of the name of a push's wait until it may be sent in blocks
HAS_LEFT = "it has left"  # message of an epoch after a node ended its part on purpose
WAS_LOST = "it was lost before the run went on from a checkpoint"  # likewise, for a node that does not take part again


@functools.lru_cache(maxsize=1024)  # one activity often ends at the instant at which others begin
def microseconds(t: float) -> float:
    """Return ``round(t, 6)``, at a third of its cost unless ``t`` is half-way between two microseconds."""
    scaled = t * 1e6
    if 0.0 <= scaled < 1e13:  # above, rounding errors of the product matter
        whole = int(scaled + 0.5)
        if -0.49 < scaled - whole < 0.49:
            return whole / 1e6
    return round(t, 6)


class Transfer(msgspec.Struct, gc=False):
    """A ``transfer`` event. It takes half as long to make and write as a dictionary; a run has millions of them."""

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
    """Appends the events of one writer to a file of events. Threads may share it.

    Events are written when the first event after ``FLUSH_INTERVAL_S`` comes, at ``flush``, and at ``close``.

    beside  another log of this process, whose file takes the events
    many    for a writer of millions of events that uses ``flushed``: ``append`` only keeps an event (a dictionary, or a
            Struct with the same fields), which must not change afterwards. The writer calls ``encode`` now and then,
            which encodes many events together
    """

    def __init__(self, directory: Path, name: str, beside: EventLog | None = None, many: bool = False) -> None:
        self.node = name
        self._file: _EventFile = _EventFile(directory, name) if beside is None else beside._file
        # attributes instead of methods, as a method would add a call for each of millions of events
        self.append: Callable[[Any], None] = self._file.events.append if many else self._file.append
        if beside is not None:
            self.append = beside.append

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """Append one event. NaN becomes ``null``."""
        self.append({"t": round(t, 6), "kind": kind, "node": self.node, **fields})

    def encode(self) -> None:
        """Encode the kept events if there are many of them; see ``many``."""
        self._file.encode()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Write all remaining events and end the part. The next event begins another part."""
        self._file.close()


@contextmanager
def flushed(log: EventLog) -> Iterator[None]:
    """Flush the log every ``FLUSH_INTERVAL_S`` from another thread while the block runs."""
    ended = threading.Event()

    def flush() -> None:
        while not ended.wait(FLUSH_INTERVAL_S):
            with suppress(OSError):  # the block's own next flush raises the error again
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
        self.events: list[Any] = []  # not encoded yet
        self._part = 0  # the next number
        self._path: Path | None = None  # of the current part, which is made when its first lines are written
        self._bytes = 0  # of lines in the current part
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._due_s = time.monotonic() + FLUSH_INTERVAL_S  # the time of the next flush

    def append(self, event: dict[str, Any]) -> None:
        """Append an event as a dictionary: ``t``, rounded to microseconds, ``kind``, ``node``, and its fields."""
        with self._lock:
            lines = self._lines
            try:
                _encode_into(event, lines, -1)
            except UnicodeEncodeError:
                del lines[lines.rfind(b"\n") + 1 :]  # the beginning of the event, which the encoder has written
                _encode_into(_escaped(event), lines, -1)
            lines += b"\n"
            if len(lines) >= _BUFFER_BYTES or time.monotonic() >= self._due_s:
                self._flush()

    def encode(self) -> None:
        """Encode ``events`` if there are at least ``_TOGETHER`` of them."""
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
        batch = self.events[:]  # another thread may append to ``events`` meanwhile
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
        except OSError:  # write to a new part, as the stream of this one is broken
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
            finally:  # the compressed stream has ended and takes no more lines
                self._begin_part()

    def _begin_part(self) -> None:
        self._path = None
        self._bytes = 0
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)

    def _write(self, data: bytes) -> None:
        """Append all of ``data`` or nothing: lines that a full disk had taken in part would later be written again."""
        assert self._path is not None
        try:
            with open(self._path, "ab", buffering=0) as file:
                end = file.tell()
                try:
                    while data:  # a disk that becomes full first takes a part of the data without an error
                        data = data[file.write(data) :]
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            error.filename = str(self._path)
            raise

    def _new_part(self) -> Path:
        """Make the first part that does not exist yet, as an earlier process of this node may have written some."""
        while True:
            path = self._directory / f"{self._name}.{self._part:04}.jsonl.gz"
            self._part += 1
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            return path


class PartReader:
    """Reads one part of a file of events, repeatedly while the part grows.

    damaged  whether the rest of the part could not be read
    ended    whether no more lines will come
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
        for at in range(0, len(data), _BUFFER_BYTES):  # in pieces, to keep those before a damaged one
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
        return whole if whole.isascii() else whole.decode(errors="replace").encode()  # damaged lines may not be UTF-8


def parts(directory: Path) -> list[Path]:
    """Return the files of events in a directory, sorted by writer and part."""
    found = [
        (match["writer"], int(match["part"]), path)
        for path in directory.glob("*.jsonl.gz")
        if (match := _PART.fullmatch(path.name)) and path.is_file()
    ]
    return [path for _, _, path in sorted(found)]


def writer_of(part: Path) -> str:
    """Return the name of the log to which a file of events belongs."""
    match = _PART.fullmatch(part.name)
    assert match is not None, part
    return match["writer"].replace(".", "/")


def read(directory: Path, node: str = "") -> Iterator[dict[str, Any]]:
    """Yield all events of a directory, or those of one node, file by file. Damaged lines are left out."""
    for path in parts(directory):
        for event in decoded(PartReader(path).lines().splitlines()):
            if isinstance(event.get("node"), str) and (not node or event["node"] == node):
                yield event


def decoded(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the events in lines. Damaged lines are left out; ``testbed.results.tables`` reports them."""
    for line in lines:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(event, dict):
            yield event


def _escaped(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event that can be written as UTF-8: other bytes, which paths may have, become escapes."""
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
