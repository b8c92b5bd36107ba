"""Holds the records of a network and executes what happens in it, by Python; ``compiled`` does so by compiled code."""

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
"""Names of the programs whose compiled code is in this process: it costs nothing to use it."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The records and functions of one kind of network.

    kinds    of its records, each a list ``<kind>_list`` of the network
    pools    the module of the functions ``<kind>_at`` that find a record
    modules  whose functions are compiled; ``pools`` is among them
    enter    the only entry: a function of the network, a command, what it is about (two numbers), the run's number, and
             two numbers more. It returns a status
    folder   of its sources; ``compiled`` there has the entry
    """

    name: str
    network: type[Timeline]
    kinds: dict[str, type[Record]]
    pools: ModuleType
    modules: tuple[ModuleType, ...]
    enter: Callable[..., int]
    folder: Path


class Machine:
    """``net``: the network. Records are added and found by their kind and their index.

    connections  all of them, as they are asked for most
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
        """Add records; their fields are 0. Return the index of the first one."""
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
        """Let as many events find room as the next one may schedule."""

    def numbers_now(self) -> list[int]:
        """Return the numbers of the events of the next instant, in order."""
        return numbers_at(self.net, self.net.next_s)
