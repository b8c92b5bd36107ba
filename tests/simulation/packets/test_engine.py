"""Events of packets and of the clock are in one order."""

from __future__ import annotations

from functools import partial
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.engine import PacketEngine
from tests.for_each import for_each


class Order:
    """A LAN of half a second and one without a delay, and in which order things happen."""

    def __init__(self, compiled: bool) -> None:
        self.clock = Clock()
        self.engine = PacketEngine(self.clock, compiled)
        ports = self.engine.add_port(1e15), self.engine.add_port(1e15)
        self._slow = self.engine.add_path((), ports, 0.5)
        self._fast = self.engine.add_path((), ports, 0.0)
        self.seen: list[tuple[str, float]] = []

    def see(self, name: str, _: Any = None) -> None:
        self.seen.append((name, self.clock.now))

    def send(self, name: str, slow: bool) -> None:
        path = self._slow if slow else self._fast
        self.engine.send_datagrams(path, [100], 0, partial(self.see, name))


@for_each("compiled", [False, True])
def test_at_one_instant_they_happen_in_the_order_of_their_scheduling(compiled: bool) -> None:
    order = Order(compiled)
    clock = order.clock

    def first(_: Any) -> None:
        order.see("first")
        clock.at(0.5, partial(order.see, "sixth"))
        order.send("seventh", slow=False)
        clock.at(0.5, partial(order.see, "eighth"))

    clock.at(0.5, first)
    order.send("second", slow=True)
    order.send("third", slow=True)
    clock.at(0.5, partial(order.see, "fourth"))
    order.send("fifth", slow=True)
    clock.finish()
    names = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
    assert order.seen == [(name, 0.5) for name in names]


@for_each("compiled", [False, True])
def test_what_an_arrival_calls_precedes_what_was_scheduled_later(compiled: bool) -> None:
    order = Order(compiled)

    def arrived() -> None:
        order.see("arrival")
        order.send("at once", slow=False)
        order.clock.at(0.5, partial(order.see, "then"))

    order.engine.send_datagrams(order._slow, [100], 0, arrived)
    order.send("beside it", slow=True)
    order.clock.at(0.5, partial(order.see, "clock"))
    order.clock.at(0.7, partial(order.see, "later"))
    assert order.clock.peek() == 0.5
    order.clock.finish()
    assert [name for name, _ in order.seen] == ["arrival", "beside it", "clock", "at once", "then", "later"]
    assert order.clock.peek() == float("inf")
