"""A network compiled by numba: the functions of a program work on records in arrays of C structures.

This file replaces the two parts that Python executes differently: compiled code finds a record by its address in
memory, and keeps the queue of events as a binary heap in an array.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from testbed.numba_cache import compiled_by_numba
from testbed.simulation import tcp_model
from testbed.simulation.machine import events
from testbed.simulation.machine.machine import LOADED, Machine, Program
from testbed.simulation.machine.record import Event, Record, Timeline

_FIRST_RECORDS = 64
_MOST_EVENTS = 20_000  # processed in one call
_C_TYPES = {int: ctypes.c_int64, float: ctypes.c_double, bool: ctypes.c_bool}


def _structure(record: Any) -> type[ctypes.Structure]:
    """Return the C structure with a record's fields; a field that is a list becomes the address of an array."""
    fields = [(field.name, _C_TYPES.get(field.type, ctypes.c_int64)) for field in msgspec.structs.fields(record)]
    return type(record.__name__, (ctypes.Structure,), {"_fields_": fields})


@functools.cache
def structures(program: Program) -> dict[str, Any]:
    """Return the structure of each kind of record. The kind "word" is for single numbers outside records."""
    kinds = {**program.kinds, "event": Event}
    return {**{kind: _structure(record) for kind, record in kinds.items()}, "word": ctypes.c_int64}


@functools.cache
def network_structure(program: Program) -> Any:
    return _structure(program.network)


def _numba_type(structure: Any) -> Any:
    return types.int64 if structure is ctypes.c_int64 else numba.from_dtype(np.dtype(structure))


# ---- records ---------------------------------------------------------------------------------------------------------


def network_finder(program: Program) -> Any:
    """Return a function for compiled code that returns the network at an address."""
    network = _numba_type(network_structure(program))

    @intrinsic  # type: ignore[untyped-decorator]
    def network_at(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(network))

        return network(types.int64), generate

    return network_at


def _address(builder: Any, signature: Any, place: Any, kind: str, structure: Any) -> Any:
    """Generate code that computes a record's address. ``place``: the network and the record's index."""
    network, index = place
    integer = ir.IntType(64)
    offset = signature.args[0].offset(f"{kind}_list")
    field = builder.gep(network, [ir.Constant(integer, 0), ir.Constant(integer, offset)])
    base = builder.load(builder.bitcast(field, integer.as_pointer()))
    return builder.add(base, builder.mul(index, ir.Constant(integer, ctypes.sizeof(structure))))


def _finder(kind: str, structure: Any) -> Any:
    """Return a function for compiled code that finds a record by its index."""
    found = _numba_type(structure)

    @intrinsic  # type: ignore[untyped-decorator]
    def find(typing: Any, net: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = _address(builder, signature, arguments, kind, structure)
            return builder.inttoptr(address, context.get_value_type(found))

        return found(net, types.int64), generate

    return find


@intrinsic  # type: ignore[untyped-decorator]
def _word(typing: Any, net: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(builder, signature, arguments, "word", ctypes.c_int64)
        return builder.load(builder.inttoptr(address, ir.IntType(64).as_pointer()))

    return types.int64(net, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _set_word(typing: Any, net: Any, index: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        network, index, word = arguments
        address = _address(builder, signature, (network, index), "word", ctypes.c_int64)
        builder.store(word, builder.inttoptr(address, ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.void(net, types.int64, types.int64), generate


_event_at = _finder("event", _structure(Event))


# ---- events ----------------------------------------------------------------------------------------------------------


def _show_next(net: Any) -> None:
    if net.events:
        first = _event_at(net, 0)
        net.next_s = first.time_s
        net.next_number = first.number
        net.next_kind = first.kind
    else:
        net.next_s = inf


def _copy(event: Any, other: Any) -> None:
    event.time_s = other.time_s
    event.number = other.number
    event.kind = other.kind
    event.who = other.who


def _push_event(net: Any, time_s: float, kind: int, who: int) -> None:
    """Do the same as ``events.push_event``."""
    place = net.events
    net.events += 1
    net.event_room -= 1
    while place > 0:
        above = (place - 1) >> 1
        other = _event_at(net, above)
        if other.time_s <= time_s:  # at equal times, the other event was scheduled before and has the smaller number
            break
        _copy(_event_at(net, place), other)
        place = above
    event = _event_at(net, place)
    event.time_s = time_s
    event.number = net.number
    event.kind = kind
    event.who = who
    _show_next(net)


def _pop_event(net: Any) -> int:
    """Do the same as ``events.pop_event``."""
    who = _event_at(net, 0).who
    net.events -= 1
    net.event_room += 1
    size = net.events
    last = _event_at(net, size)
    place = 0
    below = 1
    while below < size:
        other = _event_at(net, below)
        if below + 1 < size:
            right = _event_at(net, below + 1)
            if right.time_s < other.time_s or (right.time_s == other.time_s and right.number < other.number):
                below += 1
                other = right
        if last.time_s < other.time_s or (last.time_s == other.time_s and last.number < other.number):
            break
        _copy(_event_at(net, place), other)
        place = below
        below = 2 * place + 1
    _copy(_event_at(net, place), last)
    _show_next(net)
    return int(who)


# ---- compiling -------------------------------------------------------------------------------------------------------

_OPTIONS = {"error_model": "numpy"}  # dividing by 0 gives infinity, without a check


@functools.cache
def _prepare_events() -> None:
    """Tell numba to compile the functions of ``events``, but ``push_event`` and ``pop_event`` as written here."""
    for function in (_show_next, _copy, events.schedule, events.begin, events.has_event_before):
        register_jitable(**_OPTIONS)(function)
    overload(events.push_event, jit_options=_OPTIONS, strict=False)(lambda net, time_s, kind, who: _push_event)
    overload(events.pop_event, jit_options=_OPTIONS, strict=False)(lambda net: _pop_event)


def prepare(program: Program) -> None:
    """Tell numba to compile all functions of a program unchanged, except those that access records by index."""
    _prepare_events()
    replaced = []
    for kind in program.kinds:
        replaced.append(getattr(program.pools, f"{kind}_at"))
        _find_by(replaced[-1], _finder(kind, structures(program)[kind]))
    if hasattr(program.pools, "word_at"):
        replaced += (program.pools.word_at, program.pools.set_word)
        _find_by(program.pools.word_at, _word)
        overload(program.pools.set_word)(_as_set_word)
    for module in program.modules:
        for function in list(vars(module).values()):
            is_own = isinstance(function, FunctionType) and function.__module__ == module.__name__
            if is_own and function not in replaced:
                register_jitable(**_OPTIONS)(function)


def _find_by(function: Any, find: Any) -> None:
    def as_find(net: Any, index: Any) -> Any:
        def found(net: Any, index: Any) -> Any:
            return find(net, index)

        return found

    overload(function)(as_find)


def _as_set_word(net: Any, index: Any, word: Any) -> Any:
    def set_word(net: Any, index: Any, word: Any) -> None:
        _set_word(net, index, word)

    return set_word


def _source(module: ModuleType) -> bytes:
    return Path(str(module.__file__)).read_bytes()


def source_number(program: Program) -> int:
    """Return a number that changes when any of the sources changes."""
    digest = hashlib.sha256()
    for name in (__name__, events.__name__, Timeline.__module__, program.network.__module__, tcp_model.__name__):
        digest.update(_source(sys.modules[name]))
    for module in program.modules:
        digest.update(_source(module))
    return int.from_bytes(digest.digest()[:7])


def marks(program: Program) -> list[Path]:
    """Return two paths. A file at either one means that numba has cached compiled code for these sources and this CPU.

    Like numba's own files, the mark lies beside the sources, or in the user's cache if their folder is read-only.
    """
    written_s = (program.folder / "compiled.py").stat().st_mtime  # numba compiles again when this time changes
    processor = f"{get_host_cpu_name()} {get_host_cpu_features().flatten()}"
    about = f"{source_number(program)} {written_s} {numba.__version__} {processor}"
    name = f"{program.name}-{hashlib.sha256(about.encode()).hexdigest()[:16]}.kept"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [program.folder / "__pycache__" / name, cache / "testbed" / name]


def is_kept(program: Program) -> bool:
    """Return whether numba has cached the compiled code. Compiling takes about 20 s."""
    return any(mark.exists() for mark in marks(program))


def _note_kept(program: Program) -> None:
    for mark in marks(program):
        with suppress(OSError):
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
            return


_ENTRY = types.int64(*[types.int64] * 5, *[types.float64] * 2)


def compiled(program: Program, enter: Callable[..., int]) -> Callable[..., int]:
    """Compile ``enter``, a function of a network's address and six numbers.

    numba's cache notices changes only in the file of ``enter`` and in its constants. So ``enter`` should have
    ``source_number`` as a constant.
    """
    function: Callable[..., int] = numba.njit(_ENTRY, cache=True, **_OPTIONS)(enter)
    _note_kept(program)
    LOADED.add(program.name)
    return function


def _copied(structure: Any, record: Any) -> Any:
    if isinstance(record, Record):
        return structure(*msgspec.structs.astuple(record))
    return structure(*record) if isinstance(record, tuple) else record


class CompiledMachine(Machine):
    """A ``Machine`` that runs its network with compiled code. It continues from ``former``, another machine's network.

    A record that ``record`` returns is valid only until records of its kind are added, as that may move their array.
    """

    def __init__(self, program: Program, compiled_enter: Callable[[], Callable[..., int]], former: Timeline) -> None:
        enter = compiled_by_numba(compiled_enter)
        self.program = program
        self.net = network_structure(program)()
        self._structures = structures(program)
        self.call = functools.partial(enter, ctypes.addressof(self.net))
        self._arrays: dict[str, Any] = {}
        self._used: dict[str, int] = {}
        for name, value in msgspec.structs.asdict(former).items():
            if not isinstance(value, list):
                setattr(self.net, name, value)
        self.net.most_events = _MOST_EVENTS
        for kind, structure in self._structures.items():
            of_kind = getattr(former, f"{kind}_list", None)
            if of_kind is None:
                continue
            self._used[kind] = len(of_kind)
            self._extend(kind, 2 * len(of_kind) + _FIRST_RECORDS)
            for index, record in enumerate(sorted(of_kind) if kind == "event" else of_kind):
                self._arrays[kind][index] = _copied(structure, record)

    def add(self, kind: str, count: int = 1) -> int:
        first = self._used[kind]
        self._used[kind] += count
        if self._used[kind] > len(self._arrays[kind]):
            self._extend(kind, 2 * self._used[kind])
        return first

    def add_words(self, words: tuple[int, ...]) -> int:
        first = self.add("word", len(words))
        self._arrays["word"][first : first + len(words)] = words
        return first

    def record(self, kind: str, index: int) -> Any:
        return self._arrays[kind][index]

    def make_room(self) -> None:
        if self.net.event_room < 2 * self.net.reserve:
            self._extend("event", 2 * (self.net.events + 2 * self.net.reserve))

    def numbers_now(self) -> list[int]:
        """See ``events.numbers_at``."""
        net = self.net
        scheduled = self._arrays["event"]
        numbers = []
        places = [0]
        while places:  # in a heap, no event below another one has an earlier time
            place = places.pop()
            if place < net.events and scheduled[place].time_s == net.next_s:
                numbers.append(scheduled[place].number)
                places += (2 * place + 1, 2 * place + 2)
        return sorted(numbers)

    def _extend(self, kind: str, count: int) -> None:
        """Make a new array of ``count`` records of this kind and copy the existing records into it."""
        array = (self._structures[kind] * count)()
        former = self._arrays.get(kind)
        if former is not None:
            ctypes.memmove(array, former, ctypes.sizeof(former))
        self._arrays[kind] = array
        setattr(self.net, f"{kind}_list", ctypes.addressof(array))
        if kind == "event":
            self.net.event_room = count - self.net.events
        elif kind == "connection":
            self.connections = array
