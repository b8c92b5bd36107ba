"""The messages that a connection has yet to send: first those that the kernel has taken, then the others by priority.

The kernel takes messages while fewer than TCP_NOTSENT_LOWAT bytes are unsent in the socket. No message overtakes bytes
that the kernel has taken, in the socket or in a queue of the path.
"""

from __future__ import annotations

from testbed.simulation.flows.heap import with_transfer, without_first
from testbed.simulation.flows.pools import transfer_at
from testbed.simulation.flows.records import Connection, Network
from testbed.simulation.machine.record import NONE


def overtakes(it: Connection, priority: float) -> bool:
    """Return whether a message of this priority overtakes any that the kernel has not taken."""
    return it.heap != NONE and priority > it.least_priority


def add_message(net: Network, it: Connection, number: int, priority: float) -> None:
    it.least_priority = priority if it.heap == NONE else min(priority, it.least_priority)
    net.sequence += 1
    message = transfer_at(net, number)
    message.key = -priority
    message.number = net.sequence
    it.heap = with_transfer(net, it.heap, number)
    it.waiting_bytes += message.size_bytes
    it.waiting += 1


def take_messages(net: Network, it: Connection, room_bytes: float) -> None:
    """Let the kernel take messages until it has at least ``room_bytes``, including those taken before."""
    while it.heap != NONE and it.taken_bytes < room_bytes:
        number = it.heap
        it.heap = without_first(net, number)
        message = transfer_at(net, number)
        message.left = NONE
        if it.taken:
            transfer_at(net, it.last_taken).left = number
        else:
            it.first_taken = number
        it.last_taken = number
        it.taken += 1
        it.taken_bytes += message.size_bytes


def next_message(net: Network, it: Connection) -> int:
    """Return and remove the next message."""
    if it.taken:
        number = it.first_taken
        message = transfer_at(net, number)
        it.first_taken = message.left
        it.taken -= 1
        it.taken_bytes -= message.size_bytes
    else:
        number = it.heap
        it.heap = without_first(net, number)
        message = transfer_at(net, number)
    it.waiting_bytes -= message.size_bytes
    it.waiting -= 1
    return number


def drop_transfer(net: Network, number: int) -> None:
    """Free a transfer, for Python to use again."""
    it = transfer_at(net, number)
    it.tells_start = False
    it.left = net.free
    net.free = number


def drop_rest(net: Network, it: Connection) -> None:
    """Drop the messages that the kernel has not taken."""
    while it.heap != NONE:
        number = it.heap
        it.heap = without_first(net, number)
        drop_transfer(net, number)
    it.waiting = it.taken
    it.waiting_bytes = it.taken_bytes


def drop_messages(net: Network, it: Connection) -> None:
    """Drop all messages."""
    while it.taken:
        number = it.first_taken
        it.first_taken = transfer_at(net, number).left
        it.taken -= 1
        drop_transfer(net, number)
    it.taken_bytes = 0.0
    drop_rest(net, it)
