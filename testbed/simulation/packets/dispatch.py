"""Executes the events of a packet network one after another, and the commands that the caller gives between them.

``enter`` is the only entry point. It returns ``DONE``, or a status that says what the caller must do before the next
event may happen: hand a socket its next message, deliver a message that has arrived, or make room for more packets.
``Network.who`` is then the number of the connection or best-effort message that the status is about.
"""

from __future__ import annotations

from testbed.simulation.machine.events import (
    DONE,
    LAST_BACKGROUND,
    NEEDS_LOOK,
    NEEDS_ROOM,
    RUN,
    STATUSES,
    STEP,
    begin,
    has_event_before,
    pop_event,
    schedule,
)
from testbed.simulation.packets.events import (
    ARRIVED,
    AT_LINK,
    AT_PORT,
    DELAY_TIMER,
    LINK_TIMER,
    PACER,
    PORT_HAS_ROOM,
    READ,
    SENDER_TIMER,
    WRITE,
)
from testbed.simulation.packets.lan_sender import take_lan_frame
from testbed.simulation.packets.links import (
    ACKNOWLEDGEMENT,
    DATA,
    DATAGRAM,
    LAN_FRAME,
    arrive_at_link,
    end_datagram,
    on_link_timer,
    pass_port,
    send_packet,
    serve_link,
)
from testbed.simulation.packets.pools import (
    connection_at,
    datagrams_at,
    free_packet,
    has_room,
    packet_at,
    take_packet,
)
from testbed.simulation.packets.receiver import on_delay_timer, on_read, receive
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.sender import on_pacer, on_sender_timer, take_acknowledgement, wake_sender
from testbed.simulation.packets.socket import open_socket, take_on, use_window, write

# Statuses beside those of ``socket``
HAS_ARRIVED = 3  # a message has arrived over a connection
HAS_ARRIVED_AND_ROOM = 4  # likewise; after the delivery, the caller gives USE_WINDOW
DATAGRAMS_HAVE_ARRIVED = 5

# Commands beside those of every network (``machine.events``)
OPEN = 2
WRITE_LATER = 3
WRITE_NOW = 4
TAKE_ON = 5
USE_WINDOW = 6
SERVE = 7
SEND_DATAGRAM = 8


def enter(net: Network, command: int, who: int, what: int, run_number: int, time_s: float, _: float) -> int:
    """Execute a command and return a status. If too few records are free, do nothing and return ``NEEDS_ROOM``.

    who     number of the connection, link or best-effort message (SEND_DATAGRAM); ``Timeline.foreground`` (RUN)
    what    the event number at which to stop (RUN); size of the datagram in bytes (SEND_DATAGRAM)
    run_number  number of the run's latest event
    time_s  the time at which to stop (RUN) or to write (WRITE_LATER)
    """
    if not has_room(net):
        return NEEDS_ROOM
    begin(net, run_number)
    if command == RUN:
        net.foreground = who
        return _run(net, time_s, what)
    return _do(net, command, who, what, time_s) + STATUSES * net.immediate


def _do(net: Network, command: int, who: int, size: int, time_s: float) -> int:
    if command == STEP:
        return _step(net)
    net.who = who
    if command == SERVE:
        serve_link(net, who)
    elif command == SEND_DATAGRAM:
        _send_datagram(net, who, size)
    elif command == WRITE_LATER:
        connection_at(net, who).is_writing = True
        schedule(net, time_s, WRITE, who)
    else:
        return _use_socket(net, connection_at(net, who), command)
    return DONE


def _use_socket(net: Network, it: Connection, command: int) -> int:
    if command == TAKE_ON:
        return take_on(net, it)
    if command == USE_WINDOW:
        return use_window(net, it)
    if command == OPEN:
        open_socket(net, it)
    return write(net, it)


def _run(net: Network, until_s: float, until_number: int) -> int:
    for _ in range(net.most_events):
        if not has_event_before(net, until_s, until_number):
            return DONE
        if not has_room(net):
            return NEEDS_ROOM
        if net.next_kind <= LAST_BACKGROUND and (net.foreground < 0 or net.foreground + net.events == net.background):
            return NEEDS_LOOK
        status = _step(net)
        if status != DONE:
            return status
    return DONE


def _step(net: Network) -> int:
    net.now = net.next_s
    net.steps += 1
    kind = net.next_kind
    who = pop_event(net)
    if kind == AT_LINK:
        arrive_at_link(net, who)
        return DONE
    if kind == AT_PORT:
        return _arrive(net, who) if pass_port(net, who) else DONE
    if kind == ARRIVED:
        return _arrive(net, who)
    if kind == LINK_TIMER:
        on_link_timer(net, who)
        return DONE
    return _step_connection(net, kind, who)


def _step_connection(net: Network, kind: int, who: int) -> int:
    it = connection_at(net, who)
    net.who = who
    if kind == DELAY_TIMER:
        net.background -= 1
        on_delay_timer(net, it)
        return DONE
    if kind == READ:
        on_read(net, it)
        return DONE
    if kind == SENDER_TIMER:
        net.background -= 1
        return _on_sender_timer(net, it)
    if kind == WRITE:
        return write(net, it)
    if kind == PORT_HAS_ROOM:
        it.waits_for_port = False
    elif kind == PACER:
        on_pacer(net, it)
    return use_window(net, it)


def _on_sender_timer(net: Network, it: Connection) -> int:
    if net.now < it.wakes_s:
        return DONE  # the timer has been set again since then
    if on_sender_timer(net, it):
        it.wakes_afterwards = True
        return use_window(net, it)
    wake_sender(net, it)
    return DONE


def _arrive(net: Network, packet: int) -> int:
    """Take a packet that has passed its receiver's port. Return a status."""
    arrival = packet_at(net, packet)
    owner = arrival.owner
    kind = arrival.kind
    net.who = owner
    status = DONE
    if kind == DATAGRAM:
        message = datagrams_at(net, owner)
        message.missing -= 1
        end_datagram(net, owner)
        if not message.missing:
            status = DATAGRAMS_HAVE_ARRIVED
        free_packet(net, packet)
        return status
    it = connection_at(net, owner)
    if kind == DATA:
        receive(net, it, packet)
        if it.received_bytes >= it.message_ends_bytes:
            status = HAS_ARRIVED
    elif kind == LAN_FRAME:
        take_lan_frame(net, it, packet)
        if it.received_bytes < it.message_ends_bytes:
            status = use_window(net, it)
        else:  # deliver the message before the connection sends more
            is_done = not it.unsent_bytes and not it.left_bytes and not it.waiting and not it.tells_idle
            status = HAS_ARRIVED if is_done else HAS_ARRIVED_AND_ROOM
    elif kind == ACKNOWLEDGEMENT:
        take_acknowledgement(net, it, packet)
        status = use_window(net, it)
    free_packet(net, packet)
    return status


def _send_datagram(net: Network, index: int, size_bytes: int) -> None:
    message = datagrams_at(net, index)
    number = take_packet(net)
    packet = packet_at(net, number)
    packet.size_bytes = size_bytes
    packet.channel = message.channel
    packet.kind = DATAGRAM
    packet.owner = index
    send_packet(net, message.path, number)
