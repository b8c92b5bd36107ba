"""What holds a packet network and executes what happens in it: by Python. ``compiled`` has the other one."""

from __future__ import annotations

from typing import Any

from testbed.simulation.packets import records
from testbed.simulation.packets.dispatch import enter
from testbed.simulation.packets.events import numbers_at
from testbed.simulation.packets.pools import has_room
from testbed.simulation.packets.records import Network, Record

RECORDS: dict[str, type[Record]] = {
    "packet": records.Packet,
    "segment": records.Segment,
    "frame": records.Frame,
    "datagrams": records.Datagrams,
    "queue": records.Queue,
    "port": records.Port,
    "hop": records.Hop,
    "path": records.Path,
    "link": records.Link,
    "connection": records.Connection,
}
FREE = ("packet", "segment", "frame")  # of these, some are kept free


class Machine:
    """``net``: the network. Records are added and found by their kind, a name of ``RECORDS``, and their index.

    ``connections``: all of them, as they are asked for most.
    """

    most_events = 64  # that happen at once, so that a run can be interrupted

    def __init__(self) -> None:
        self.net: Any = Network()
        self.net.event_room = 2**62
        self.connections: Any = self.net.connection_list

    def call(self, *arguments: Any) -> int:
        """See ``dispatch.enter``."""
        return enter(self.net, *arguments)

    def add(self, kind: str, count: int = 1) -> int:
        """Add records; their fields are 0. Return the index of the first one."""
        of_kind: list[Record] = getattr(self.net, f"{kind}_list")
        of_kind.extend(RECORDS[kind]() for _ in range(count))
        return len(of_kind) - count

    def add_words(self, words: tuple[int, ...]) -> int:
        """Add numbers. Return the index of the first one."""
        self.net.word_list.extend(words)
        return len(self.net.word_list) - len(words)

    def record(self, kind: str, index: int) -> Any:
        return getattr(self.net, f"{kind}_list")[index]

    def make_room(self) -> None:
        """Let as many records be free as the next event may need."""
        net = self.net
        while not has_room(net):
            for kind in FREE:
                missing = net.reserve - getattr(net, f"free_{kind}s")
                if missing > 0:
                    self._add_free(kind, 2 * net.reserve)

    def _add_free(self, kind: str, count: int) -> None:
        net = self.net
        first = self.add(kind, count)
        for index in range(first, first + count - 1):
            self.record(kind, index).next = index + 1
        self.record(kind, first + count - 1).next = getattr(net, f"free_{kind}")
        setattr(net, f"free_{kind}", first)
        setattr(net, f"free_{kind}s", getattr(net, f"free_{kind}s") + count)

    def numbers_now(self) -> list[int]:
        """Return the numbers of the events of the next instant, in order."""
        return numbers_at(self.net, self.net.next_s)
