"""Holds the records of a network and executes its events in Python; ``compiled`` does the same with compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.simulation.machine.events import numbers_at
from testbed.simulation.machine.record import Record, Timeline

LOADED: set[str] = set()
"""Names of the programs whose compiled code this process has loaded already."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The records and functions of one kind of network.

    kinds    the record class of each kind; the network has the records in a list ``<kind>_list``
    pools    the module with the functions ``<kind>_at``, which return a record by its index
    modules  all modules whose functions are compiled, ``pools`` among them
    enter    the only entry point. Arguments: the network, a command, two numbers that say what it is about, the number
             of the run's latest event, and two more numbers. Returns a status
    folder   the folder of the sources; its ``compiled.py`` has the compiled entry point
    """

    name: str
    network: type[Timeline]
    kinds: dict[str, type[Record]]
    pools: ModuleType
    modules: tuple[ModuleType, ...]
    enter: Callable[..., int]
    folder: Path


class Machine:
    """Holds a network's records. Each record has a kind and an index.

    net          the network's own record
    connections  all connection records, for fast access
    call         ``Program.enter`` for this network
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        net: Any = program.network()
        net.event_room = 2**62
        self.net = net
        self.connections = net.connection_list
        self.call: Callable[..., int] = partial(program.enter, net)

    def add(self, kind: str, count: int = 1) -> int:
        """Add records whose fields are all 0. Return the index of the first one."""
        of_kind: list[Record] = getattr(self.net, f"{kind}_list")
        record = self.program.kinds[kind]
        of_kind.extend(record() for _ in range(count))
        return len(of_kind) - count

    def add_words(self, words: tuple[int, ...]) -> int:
        """Add numbers. Return the index of the first one."""
        self.net.word_list.extend(words)
        return len(self.net.word_list) - len(words)

    def record(self, kind: str, index: int) -> Any:
        return getattr(self.net, f"{kind}_list")[index]

    def make_room(self) -> None:
        """Make room for as many events as the next one may schedule. Python's list of events needs no room."""

    def numbers_now(self) -> list[int]:
        """Return, in order, the numbers of the events at the next instant."""
        return numbers_at(self.net, self.net.next_s)
