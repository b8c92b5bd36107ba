"""The packet network compiled by numba: the functions of this folder, over records that lie in arrays of C structures.

Two things differ from their execution by Python and are written here: a record is found by its address in memory, and
the queue of events is a binary heap in an array.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from types import FunctionType
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
from testbed.simulation.packets import (
    bbr,
    congestion,
    delivery_rate,
    dispatch,
    events,
    generator,
    host_queue,
    lan_sender,
    links,
    pools,
    receiver,
    records,
    scoreboard,
    sender,
    socket,
    timers,
)
from testbed.simulation.packets.machine import RECORDS, Machine
from testbed.simulation.packets.records import Network, Record

_MODULES = (
    pools, generator, events, links, host_queue, timers, congestion, delivery_rate, scoreboard, bbr, receiver, sender,
    lan_sender, socket, dispatch,
)  # fmt: skip
_FIRST_RECORDS = 64
_C_TYPES = {int: ctypes.c_int64, float: ctypes.c_double, bool: ctypes.c_bool}


def _structure(record: type[Record]) -> type[ctypes.Structure]:
    """Return the structure of a record's fields; a list is the address of an array."""
    fields = [(field.name, _C_TYPES.get(field.type, ctypes.c_int64)) for field in msgspec.structs.fields(record)]
    return type(record.__name__, (ctypes.Structure,), {"_fields_": fields})


_STRUCTURES: dict[str, Any] = {
    **{kind: _structure(record) for kind, record in RECORDS.items()},
    "event": _structure(records.Event),
    "word": ctypes.c_int64,
}
_NETWORK: Any = _structure(Network)


def _numba_type(structure: Any) -> Any:
    return types.int64 if structure is ctypes.c_int64 else numba.from_dtype(np.dtype(structure))


_NETWORK_TYPE = _numba_type(_NETWORK)


# ---- records ---------------------------------------------------------------------------------------------------------


@intrinsic  # type: ignore[untyped-decorator]
def _network_at(typing: Any, address: Any) -> Any:
    """Return the network at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(_NETWORK_TYPE))

    return _NETWORK_TYPE(types.int64), generate


def _address(builder: Any, place: Any, kind: str) -> Any:
    """Generate the address of a record. ``place``: the network, and the index."""
    network, index = place
    integer = ir.IntType(64)
    offset = getattr(_NETWORK, f"{kind}_list").offset
    field = builder.gep(network, [ir.Constant(integer, 0), ir.Constant(integer, offset)])
    base = builder.load(builder.bitcast(field, integer.as_pointer()))
    return builder.add(base, builder.mul(index, ir.Constant(integer, ctypes.sizeof(_STRUCTURES[kind]))))


def _finder(kind: str) -> Any:
    """Return a function that numba compiles to a record's address."""
    found = _numba_type(_STRUCTURES[kind])

    @intrinsic  # type: ignore[untyped-decorator]
    def find(typing: Any, net: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(_address(builder, arguments, kind), context.get_value_type(found))

        return found(net, types.int64), generate

    return find


@intrinsic  # type: ignore[untyped-decorator]
def _word(typing: Any, net: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(_address(builder, arguments, "word"), ir.IntType(64).as_pointer()))

    return types.int64(net, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _set_word(typing: Any, net: Any, index: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        network, index, word = arguments
        address = _address(builder, (network, index), "word")
        builder.store(word, builder.inttoptr(address, ir.IntType(64).as_pointer()))
        return context.get_dummy_value()

    return types.void(net, types.int64, types.int64), generate


_event_at = _finder("event")


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
    """As ``events.push_event``."""
    place = net.events
    net.events += 1
    net.event_room -= 1
    while place > 0:
        above = (place - 1) >> 1
        other = _event_at(net, above)
        if other.time_s <= time_s:  # of equal times the number is the smaller one, as it was scheduled before
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
    """As ``events.pop_event``."""
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

_OPTIONS = {"error_model": "numpy"}  # a division by 0 is infinite: nothing looks for one


def _replace_all() -> tuple[Callable[..., Any], ...]:
    """Tell numba to compile the functions of this file in place of their Python forms; return the latter."""
    for kind in RECORDS:
        _find_by(getattr(pools, f"{kind}_at"), _finder(kind))
    _find_by(pools.word_at, _word)
    overload(pools.set_word)(_as_set_word)
    for function in (_show_next, _copy):
        register_jitable(**_OPTIONS)(function)
    overload(events.push_event, jit_options=_OPTIONS, strict=False)(lambda net, time_s, kind, who: _push_event)
    overload(events.pop_event, jit_options=_OPTIONS, strict=False)(lambda net: _pop_event)
    found = (getattr(pools, f"{kind}_at") for kind in RECORDS)
    return (*found, pools.word_at, pools.set_word, events.push_event, events.pop_event, events.numbers_at)


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


def _register_all(besides: tuple[Callable[..., Any], ...]) -> None:
    """Tell numba to compile all functions of the folder as they are, except ``besides``."""
    for module in _MODULES:
        for function in list(vars(module).values()):
            is_own = isinstance(function, FunctionType) and function.__module__ == module.__name__
            if is_own and function not in besides:
                register_jitable(**_OPTIONS)(function)


def _source_number() -> int:
    """Return a number that changes when any of the sources changes."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(tcp_model.__file__)):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:7])


def _marks() -> list[Path]:
    """Return two paths; a file at either says that numba has kept the code of these sources for this processor.

    Like numba's own files it lies beside the sources, or in the user's cache where their folder cannot be written to.
    """
    written_s = Path(__file__).stat().st_mtime  # numba compiles anew when this time changes
    processor = f"{get_host_cpu_name()} {get_host_cpu_features().flatten()}"
    about = f"{_source_number()} {written_s} {numba.__version__} {processor}"
    name = f"packets-{hashlib.sha256(about.encode()).hexdigest()[:16]}.kept"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(__file__).parent / "__pycache__" / name, cache / "testbed" / name]


def is_kept() -> bool:
    """Return whether numba has kept the compiled code. Compiling takes about 20 s."""
    return any(mark.exists() for mark in _marks())


def _note_kept() -> None:
    for mark in _marks():
        with suppress(OSError):
            mark.parent.mkdir(exist_ok=True)
            mark.touch()
            return


_ENTRY = types.int64(*[types.int64] * 4, types.float64, *[types.int64] * 2)


@functools.cache
def compiled_enter() -> Callable[..., int]:
    """Return ``dispatch.enter`` compiled, as a function of a network's address and six numbers."""
    _register_all(besides=_replace_all())
    sources = _source_number()

    def enter_at(address: int, command: int, who: int, size: int, time_s: float, number: int, run_number: int) -> int:
        # numba's cache looks at this file and at this constant only; without it a change of another file went unseen
        if sources == 0:
            return 0
        return dispatch.enter(_network_at(address), command, who, size, time_s, number, run_number)

    function: Callable[..., int] = numba.njit(_ENTRY, cache=True, **_OPTIONS)(enter_at)
    _note_kept()
    return function


def _copied(structure: Any, record: Any) -> Any:
    if isinstance(record, Record):
        return structure(*msgspec.structs.astuple(record))
    return structure(*record) if isinstance(record, tuple) else record


class CompiledMachine(Machine):
    """A ``Machine`` whose network is run by compiled code. It continues ``former``, the network of another machine.

    A record that ``record`` returns is valid until records of its kind are added, which may move their array.
    """

    most_events = 20_000

    def __init__(self, former: Network) -> None:
        self._enter = compiled_by_numba(compiled_enter)
        self.net = _NETWORK()
        self._address = ctypes.addressof(self.net)
        self._arrays: dict[str, Any] = {}
        self._used: dict[str, int] = {}
        for name, value in msgspec.structs.asdict(former).items():
            if not isinstance(value, list):
                setattr(self.net, name, value)
        for kind, structure in _STRUCTURES.items():
            of_kind = getattr(former, f"{kind}_list")
            self._used[kind] = len(of_kind)
            self._extend(kind, 2 * len(of_kind) + _FIRST_RECORDS)
            for index, record in enumerate(sorted(of_kind) if kind == "event" else of_kind):
                self._arrays[kind][index] = _copied(structure, record)

    def call(self, *arguments: Any) -> int:
        return self._enter(self._address, *arguments)

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
        super().make_room()

    def numbers_now(self) -> list[int]:
        """See ``events.numbers_at``."""
        net = self.net
        scheduled = self._arrays["event"]
        numbers = []
        places = [0]
        while places:  # below an event of a heap there are none of an earlier time
            place = places.pop()
            if place < net.events and scheduled[place].time_s == net.next_s:
                numbers.append(scheduled[place].number)
                places += (2 * place + 1, 2 * place + 2)
        return sorted(numbers)

    def _extend(self, kind: str, count: int) -> None:
        """Make an array of ``count`` records, and copy those that there are."""
        array = (_STRUCTURES[kind] * count)()
        former = self._arrays.get(kind)
        if former is not None:
            ctypes.memmove(array, former, ctypes.sizeof(former))
        self._arrays[kind] = array
        setattr(self.net, f"{kind}_list", ctypes.addressof(array))
        if kind == "event":
            self.net.event_room = count - self.net.events
        elif kind == "connection":
            self.connections = array
