"""Reads the files that PyTorch writes for a rank: its execution trace, and the profiler's times of the same run.

``torch.profiler.ExecutionTraceObserver`` records operators, tensors and process groups. The profiler (Kineto) records
when each operator ran, and on which thread of the host or stream of the GPU. In both files, the number of its record
function identifies an operator.

* A thread of the host is a chain of pieces of work, which is cut where the thread waits, or launches a kernel or a
  communication. The time between operators is Python's, and counts as work.
* A kernel follows its launch, and the kernel before it on its stream. A communication follows its launch and, on a GPU,
  the last kernel that the same thread launched before it.
* PyTorch does not record what waits for a communication. If the call was synchronous, the calling thread does. If not,
  the thread or stream that stood still until the communication ended does. If there is none, the next optimizer step
  does, as it needs the gradients.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from testbed.errors import ScenarioError
from testbed.job_trace import chakra, model
from testbed.job_trace.model import RankTrace, TraceNode, whole

STOOD_STILL_US = 100.0
_OPERATIONS = (  # an operation whose name contains the name of another one comes before it
    model.ALL_REDUCE,
    model.ALL_GATHER,
    model.REDUCE_SCATTER,
    model.ALL_TO_ALL,
    model.BROADCAST,
    model.BARRIER,
    model.REDUCE,
    model.GATHER,
    model.SCATTER,
)
_HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_BACK_ENDS = ("gloo:", "nccl:", "mpi:", "ucc:")
_STEP = "Optimizer.step"
_GROUPS = "process_group:init"
T = TypeVar("T")


class _Attribute(msgspec.Struct):
    name: str
    value: Any = None


class _Inputs(msgspec.Struct):
    values: list[Any] = []


class _Operator(msgspec.Struct):
    """A node of the execution trace. ``record`` is the number of its record function; -1: none."""

    name: str
    id: int
    inputs: _Inputs
    attrs: list[_Attribute] = []

    def attribute(self, name: str) -> Any:
        return next((each.value for each in self.attrs if each.name == name), None)

    @property
    def record(self) -> int:
        found = self.attribute("rf_id")
        return found if isinstance(found, int) else -1


class _Observed(msgspec.Struct):
    """The content of the observer's file."""

    schema: str
    nodes: list[_Operator]


class _Arguments(msgspec.Struct):
    record: int | None = msgspec.field(default=None, name="Record function id")
    external: int | None = msgspec.field(default=None, name="External id")
    correlation: int | None = None


class _Recorded(msgspec.Struct):
    """An event of the profiler, of any kind."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Any = None


class _Profiled(msgspec.Struct):
    """The content of the profiler's file."""

    events: list[_Recorded] = msgspec.field(name="traceEvents")


@dataclass(slots=True)
class _Event:
    """An activity on a thread or stream (``lane``) from ``begin_us`` to ``end_us``."""

    name: str
    lane: str
    begin_us: float
    end_us: float
    kind: str = ""
    arguments: _Arguments = field(default_factory=_Arguments)

    @classmethod
    def of(cls, told: _Recorded) -> _Event:
        """Convert an event. Raise ``msgspec.ValidationError`` if its arguments do not have the profiler's types."""
        arguments = msgspec.convert(told.args or {}, _Arguments)
        return cls(told.name, f"{told.pid}/{told.tid}", told.ts, told.ts + told.dur, told.cat, arguments)


@dataclass(slots=True)
class _Communication:
    """An operation of a process group, or a message. With ``call``, the thread ``call.lane`` asked for it."""

    node: TraceNode
    call: _Event
    begin_us: float
    end_us: float
    synchronous: bool
    kernel: _Event | None = None
    after: list[_Piece | _Communication] = field(default_factory=list)
    id: int = -1


@dataclass(slots=True)
class _Piece:
    """A part of a thread's work, or a kernel. It waits for the pieces and communications in ``after``."""

    name: str
    begin_us: float
    end_us: float
    on_host: bool
    after: list[_Piece | _Communication] = field(default_factory=list)
    id: int = -1


@dataclass(slots=True)
class _Wait:
    """A thread does nothing from ``from_us`` to ``until_us``, when ``what`` ends.

    If ``what`` is an event, the thread waits for the work of the event's thread up to the event's end.
    """

    from_us: float
    until_us: float
    what: _Piece | _Communication | _Event | None


def read(trace: Path, times: Path, rank: int) -> RankTrace:
    """Return the trace of ``rank`` in both files. Raise ``ScenarioError`` if they are damaged, or of different runs."""
    return _Linked(trace, times, rank).trace()


class _Linked:
    """Links the events of both files of one rank."""

    def __init__(self, trace: Path, times: Path, rank: int) -> None:
        self._file = str(trace)
        self._rank = rank
        self._where = f"{trace} and {times.name}: rank {rank}"
        observed = self._read(trace, _Observed, "execution trace of PyTorch's ExecutionTraceObserver")
        if "chakra" not in observed.schema:
            problem = f"has schema {observed.schema}, and 1.0.2-chakra.0.0.4 is the oldest that is read"
            raise ScenarioError(f"{trace}: rank {rank}: {problem}; trace the job again with PyTorch 2.3 or newer")
        chakra.check_version(observed.schema, f"{trace}: rank {rank}", "trace the job again, with {} PyTorch")
        profiled = self._read(times, _Profiled, "trace of PyTorch's profiler (export_chrome_trace)")
        self._groups = dict(self._groups_of(observed.nodes))
        self._nodes = {node.record: node for node in observed.nodes}
        try:
            self._events = [
                _Event.of(each)
                for each in profiled.events
                if each.ph == "X" and each.cat in (*_HOST, *_DEVICE) and each.dur >= 0
            ]
        except msgspec.ValidationError as error:
            raise ScenarioError(f"{times}: rank {rank}: {error} in the args of an event; write it again") from error
        self._events.sort(key=lambda event: (event.begin_us, -event.end_us))
        records = ((event.arguments.record, event) for event in self._events)
        self._host = {record: event for record, event in records if record is not None}
        if not self._host:
            problem = "the profiler's events have no 'Record function id', by which they are linked"
            raise ScenarioError(f"{self._where}: {problem}; profile with PyTorch 2.1 or newer")
        if not self._host.keys() & self._nodes.keys():
            raise ScenarioError(f"{self._where}: have no operator in common, so they come from two different runs")

    def _read(self, path: Path, kind: type[T], what: str) -> T:
        try:
            data = path.read_bytes()
            return msgspec.json.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=kind)
        except msgspec.ValidationError as error:
            raise ScenarioError(f"{path}: rank {self._rank}: is no {what}: {error}") from error
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise ScenarioError(f"{path}: rank {self._rank}: {error}; write it again") from error

    def _groups_of(self, nodes: list[_Operator]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the process groups that PyTorch recorded at the start."""
        for node in nodes:
            if _GROUPS in node.name:
                try:
                    for entry in json.loads(node.inputs.values[0]):
                        yield str(entry["pg_name"]), tuple(map(whole, entry["ranks"]))
                except (IndexError, KeyError, TypeError, ValueError) as error:
                    place = f"{self._where}, node {node.id}"
                    raise ScenarioError(f"{place}: its process groups cannot be read: {error}") from error

    def trace(self) -> RankTrace:
        """Return the trace, with nodes in the order in which they began."""
        communications = list(self._communications())
        kernels = self._kernels(communications)
        threads = self._threads()
        waits = self._waits(communications, kernels, threads)
        cuts = self._cuts(communications, kernels)
        pieces = {lane: _pieces(events, cuts[lane], waits[lane]) for lane, events in threads.items()}
        for lane, found in pieces.items():
            _chain(found, waits[lane], pieces)
        self._follow_launches(communications, kernels, pieces)
        made: list[_Piece | _Communication] = [*communications, *(piece for piece, _ in kernels)]
        made += [piece for found in pieces.values() for piece in found]
        made.sort(key=lambda each: each.begin_us)
        for number, each in enumerate(made):
            each.id = number
        return RankTrace(self._rank, self._file, tuple(map(_node, made)), self._groups)

    # ---- communications -----------------------------------------------------------------------------------------

    def _communications(self) -> Iterator[_Communication]:
        calls = sorted(id_ for id_, node in self._nodes.items() if node.name.startswith("c10d::"))
        for id_, node in sorted(self._nodes.items()):
            event = self._host.get(id_)
            if event is None or not node.name.startswith(_BACK_ENDS):
                continue
            place = bisect_right(calls, id_) - 1
            called = self._nodes[calls[place]] if place >= 0 else node
            call = self._host.get(called.record, event)
            kernel = self._kernel_of(event, call)
            began_us, ended_us = (kernel.begin_us, kernel.end_us) if kernel else (event.begin_us, event.end_us)
            yield _Communication(self._made(node, called), call, began_us, ended_us, _waits(called), kernel)

    def _made(self, node: _Operator, called: _Operator) -> TraceNode:
        name = node.name.partition(":")[2].replace("_", "").lower()
        values = called.inputs.values
        size = _bytes_of(node.inputs.values) or _bytes_of(values)
        group = self._group_of(called.record, node.record)
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        if name in ("send", "recv"):
            kind = model.SEND if name == "send" else model.RECEIVE
            peer, tag = [*numbers, 0, 0][:2]
            return TraceNode(-1, called.name, kind, size_bytes=size, peer=peer, tag=tag)
        operation = next((found for found in _OPERATIONS if found.replace("_", "") in name), "")
        if not operation:
            place = f"{self._where}, node {node.id} '{node.name}'"
            raise ScenarioError(f"{place}: is not a known collective operation; leave it out of the profile")
        root = numbers[0] if operation in model.ROOTED and numbers else -1
        size = 0 if operation == model.BARRIER else size
        return TraceNode(
            -1, called.name, model.COLLECTIVE, size_bytes=size, peer=root, operation=operation, group=group
        )

    def _group_of(self, called: int, began: int) -> str:
        """Return the process group that PyTorch recorded between call and operation; for Gloo, it records none."""
        for id_, node in self._nodes.items():
            if called < id_ <= began and node.name == "record_param_comms":
                return str(node.attribute("pg_name") or model.EVERYONE)
        return model.EVERYONE

    def _kernel_of(self, event: _Event, call: _Event) -> _Event | None:
        """Return the kernel on the GPU that a call of NCCL launched, or ``None``."""
        external = {each.arguments.external for each in (event, call)} - {None}
        for each in self._events:
            if each.kind == "kernel" and "nccl" in each.name and each.arguments.external in external:
                return each
        return None

    # ---- threads and streams ------------------------------------------------------------------------------------

    def _threads(self) -> dict[str, list[_Event]]:
        """Return the events of each thread that computes, by time, without those inside a back end's communications."""
        threads: dict[str, list[_Event]] = defaultdict(list)
        busy_us: dict[str, float] = {}  # end of the communication in which a thread is
        for event in self._events:
            if event.kind in _DEVICE:
                continue
            if event.name.startswith(_BACK_ENDS):
                busy_us[event.lane] = max(busy_us.get(event.lane, 0.0), event.end_us)
            elif event.begin_us >= busy_us.get(event.lane, 0.0):
                threads[event.lane].append(event)
        return threads

    def _kernels(self, communications: list[_Communication]) -> list[tuple[_Piece, _Event]]:
        """Return the kernels of the GPU, each with the event that launched it; each follows the last of its stream."""
        taken = {each.kernel.begin_us for each in communications if each.kernel}
        launches = {event.arguments.correlation: event for event in self._events if event.kind not in _DEVICE}
        launches.pop(None, None)
        last: dict[str, _Piece] = {}
        found = []
        for event in self._events:
            launch = launches.get(event.arguments.correlation)
            if event.kind not in _DEVICE or event.begin_us in taken or launch is None:
                continue
            piece = _Piece(event.name, event.begin_us, event.end_us, on_host=False)
            before = last.get(event.lane)
            piece.after += [before] if before else []
            idle_us = before.end_us if before else 0.0
            piece.after += [
                each
                for each in communications
                if each.kernel and each.call.begin_us < launch.begin_us  # and the stream has stood still until its end
                if idle_us + STOOD_STILL_US <= each.end_us <= event.begin_us
            ]
            last[event.lane] = piece
            found.append((piece, launch))
        return found

    def _waits(
        self,
        communications: list[_Communication],
        kernels: list[tuple[_Piece, _Event]],
        threads: dict[str, list[_Event]],
    ) -> dict[str, list[_Wait]]:
        """Return the waits of each thread."""
        waits: dict[str, list[_Wait]] = defaultdict(list)
        steps = [event for event in self._events if event.name.startswith(_STEP)]
        for each in communications:
            waits[each.call.lane] += _waits_for(each, threads.get(each.call.lane, []), steps)
        for event in self._events:
            if "Synchronize" in event.name and event.kind in _HOST:
                done = [piece for piece, _ in kernels if piece.end_us <= event.end_us]
                last = max(done, key=lambda piece: piece.end_us, default=None)
                waits[event.lane].append(_Wait(event.begin_us, event.end_us, last))
        main, *others = threads  # the main thread has the first event
        for lane in others:
            for begin, end in _bursts(threads[lane]):
                waits[lane].append(_Wait(begin.begin_us, begin.begin_us, _Event("", main, 0, begin.begin_us)))
                within = [each for each in threads[main] if begin.begin_us < each.begin_us < end.end_us]
                if not within:  # the main thread waits, as during a backward pass, which has a thread of its own
                    until = _Event("", lane, 0, end.end_us)
                    waits[main].append(_Wait(begin.begin_us, end.end_us, until))
        for found in waits.values():
            found.sort(key=lambda wait: wait.until_us)
        return waits

    def _cuts(
        self, communications: list[_Communication], kernels: list[tuple[_Piece, _Event]]
    ) -> dict[str, list[float]]:
        """Return the times at which each thread launches something."""
        cuts: dict[str, list[float]] = defaultdict(list)
        for event in (*(each.call for each in communications), *(launch for _, launch in kernels)):
            cuts[event.lane].append(event.begin_us)
        return cuts

    def _follow_launches(
        self,
        communications: list[_Communication],
        kernels: list[tuple[_Piece, _Event]],
        pieces: dict[str, list[_Piece]],
    ) -> None:
        for kernel, launch in kernels:
            kernel.after += _last(pieces.get(launch.lane, []), launch.begin_us)
        for each in communications:
            each.after += _last(pieces.get(each.call.lane, []), each.call.begin_us)
            if each.kernel:
                on_lane = [(piece, launch) for piece, launch in kernels if launch.lane == each.call.lane]
                before = [piece for piece, launch in on_lane if launch.begin_us < each.call.begin_us]
                each.after += before[-1:]


def _waits_for(each: _Communication, events: list[_Event], steps: list[_Event]) -> Iterator[_Wait]:
    """Yield the calling thread's waits for a communication. The call itself does not count as work."""
    call = each.call
    if each.synchronous and not each.kernel:
        yield _Wait(call.begin_us, max(call.end_us, each.end_us), each)
        return
    yield _Wait(call.begin_us, call.end_us, None)
    if each.kernel:
        return
    busy_us = call.end_us
    for event in events:
        if call.end_us <= event.begin_us < each.end_us and event.name.startswith("aten::"):
            busy_us = max(busy_us, event.end_us)
    step = next((step for step in steps if step.begin_us >= max(call.end_us, each.end_us)), None)
    if each.end_us - busy_us >= STOOD_STILL_US:
        yield _Wait(busy_us, each.end_us, each)
    elif step is not None and step.lane == call.lane:
        yield _Wait(step.begin_us, step.begin_us, each)


def _bursts(events: list[_Event]) -> Iterator[tuple[_Event, _Event]]:
    """Yield the first and the last event of each period in which a thread works without long pauses."""
    first = last = events[0]
    for event in events[1:]:
        if event.begin_us - last.end_us > 10 * STOOD_STILL_US:
            yield first, last
            first = event
        last = event if event.end_us >= last.end_us or event is first else last
    yield first, last


def _pieces(events: list[_Event], cuts: list[float], waits: list[_Wait]) -> list[_Piece]:
    """Return the pieces of a thread's work, cut where it launches something or waits."""
    begin_us = events[0].begin_us
    end_us = max(event.end_us for event in events)
    bounds = {begin_us, end_us, *cuts, *(at for wait in waits for at in (wait.from_us, wait.until_us))}
    found = []
    ordered = sorted(at for at in bounds if begin_us <= at <= end_us)
    starts = [event.begin_us for event in events]
    for from_us, until_us in pairwise(ordered):
        if not any(wait.from_us <= from_us and until_us <= wait.until_us for wait in waits):
            place = bisect_left(starts, from_us)
            name = events[place].name if place < len(events) and starts[place] < until_us else "between operators"
            found.append(_Piece(name, from_us, until_us, on_host=True))
    return found


def _chain(found: list[_Piece], waits: list[_Wait], pieces: dict[str, list[_Piece]]) -> None:
    """Let each piece of a thread follow the piece before it, and everything for which the thread waited in between."""
    left = deque(waits)
    before: list[_Piece] = []
    for piece in found:
        piece.after += before
        while left and left[0].until_us <= piece.begin_us:
            what = left.popleft().what
            if isinstance(what, _Event):
                piece.after += _last(pieces[what.lane], what.end_us)
            elif what is not None:
                piece.after.append(what)
        before = [piece]


def _last(pieces: list[_Piece], at_us: float) -> list[_Piece]:
    """Return the last piece that had ended at ``at_us``, or an empty list."""
    place = bisect_right(pieces, at_us, key=lambda piece: piece.end_us)
    return pieces[place - 1 : place] if place else []


def _node(made: _Piece | _Communication) -> TraceNode:
    after = tuple(sorted({each.id for each in made.after}))
    if isinstance(made, _Communication):
        return msgspec.structs.replace(made.node, id=made.id, after=after)
    duration_s = (made.end_us - made.begin_us) / 1e6
    return TraceNode(made.id, made.name, model.COMPUTE, after, duration_s, on_host=made.on_host)


def _waits(called: _Operator) -> bool:
    """Return whether the caller of an operation waits for it, as it does unless ``async_op`` is true."""
    schema = str(called.attribute("op_schema") or "")
    names = [
        part.split()[-1].partition("=")[0] for part in schema.partition("(")[2].partition(")")[0].split(", ") if part
    ]
    values = dict(zip(names, called.inputs.values, strict=False))
    return not values.get("async_op", values.get("asyncOp", False))


def _bytes_of(values: Any) -> int:
    """Return the bytes of all tensors ([id, storage, offset, elements, bytes, device]) among an operator's inputs."""
    if not isinstance(values, list):
        return 0
    if len(values) == 6 and isinstance(values[5], str):
        elements, element_bytes = values[3:5]
        is_tensor = isinstance(elements, int) and isinstance(element_bytes, int)
        return elements * element_bytes if is_tensor else 0
    return sum(map(_bytes_of, values))
