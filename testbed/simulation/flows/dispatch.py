"""Executes the events of a flow network one after another, and the commands that the caller gives between them.

``enter`` is the only entry point. It returns ``DONE``, or a status that says what the caller must do before the next
event may happen: deliver a message, or handle notices (``Network.notices``).
"""

from __future__ import annotations

from testbed.simulation.flows.classes import (
    WAKE,
    count,
    end_flows,
    set_cap,
    set_capacity,
    set_weight,
    settle,
    start,
)
from testbed.simulation.flows.pools import connection_at, transfer_at
from testbed.simulation.flows.records import Connection, Network
from testbed.simulation.flows.sending import (
    ARRIVAL,
    RETRANSMISSION,
    ROUND_END,
    note,
    on_retransmission,
    on_round_end,
    on_sent,
    open_connection,
    path_changed,
    pump,
    see_path,
    send,
    state_changed,
    stop,
    take_limits,
)
from testbed.simulation.flows.solver import simulate
from testbed.simulation.flows.waiting import drop_messages
from testbed.simulation.flows.window import begin_window
from testbed.simulation.machine.events import (
    DONE,
    NEEDS_ROOM,
    RUN,
    STATUSES,
    STEP,
    begin,
    has_event_before,
    pop_event,
)
from testbed.simulation.machine.record import NONE

# Statuses: the message ``Timeline.who`` has arrived; there are notices
HAS_ARRIVED = 1
HAS_NOTICES = 2

HAS_ENDED = 3  # a notice, like those of ``sending``: a flow that belongs to no connection has ended

# Commands about a connection
BEGIN = 2  # given once, after the connection has been added
SEND = 3
OPEN = 4
PUMP = 5
STOP = 6
DROP = 7
PATH_CHANGED = 8
STATE_CHANGED = 9
# about a class
START = 10
SET_CAP = 11
SET_WEIGHT = 12
# about links
SET_CAPACITY = 13
COUNT = 14
SIMULATE = 15  # see ``solver.simulate``


def enter(net: Network, command: int, who: int, what: int, run_number: int, time_s: float, value: float) -> int:
    """Execute a command and return a status. If too little room is left, do nothing and return ``NEEDS_ROOM``.

    SIMULATE returns the number of flows that ended instead of a status.

    who     number of the connection, class or link
    what    the event number at which to stop (RUN); the transfer (SEND, STOP, START); number of flows (SIMULATE)
    run_number  number of the run's latest event
    time_s  end time (RUN, STOP, SIMULATE); for SEND and START, a size in bytes instead
    value   priority (SEND), number of flows (START), cap, weight or capacity
    """
    if net.event_room < net.reserve:
        return NEEDS_ROOM
    begin(net, run_number)
    if command == RUN:
        return _run(net, time_s, what)
    if command == SEND:
        send(net, connection_at(net, who), what, time_s, value)
    elif command == STEP:
        return _step(net) + STATUSES * net.immediate
    elif command < START:
        _do(net, connection_at(net, who), command, what, time_s)
    elif command == START:
        _start(net, who, what, time_s, int(value))
    elif command == SET_CAP:
        set_cap(net, who, value)
    elif command == SET_WEIGHT:
        set_weight(net, who, value)
    elif command == SET_CAPACITY:
        set_capacity(net, who, value)
    elif command == COUNT:
        count(net)
    else:
        return simulate(net, what, time_s)
    return _status(net) + STATUSES * net.immediate


def _do(net: Network, it: Connection, command: int, what: int, time_s: float) -> None:
    if command == OPEN:
        open_connection(net, it)
    elif command == PUMP:
        pump(net, it)
    elif command == STOP:
        stop(net, it, what, time_s)
    elif command == DROP:
        drop_messages(net, it)
    elif command == PATH_CHANGED:
        path_changed(net, it)
    elif command == STATE_CHANGED:
        state_changed(net, it)
    else:
        see_path(net, it)
        begin_window(net, it)
        take_limits(net, it)


def _start(net: Network, number: int, transfer: int, size_bytes: float, flows: int) -> None:
    it = transfer_at(net, transfer)
    it.size_bytes = size_bytes
    it.flows = flows
    it.connection = NONE
    start(net, number, transfer)


def _status(net: Network) -> int:
    return HAS_NOTICES if net.notices else DONE


def _run(net: Network, until_s: float, until_number: int) -> int:
    for _ in range(net.most_events):
        if net.unsettled and until_s > net.now and not net.next_s <= net.now:
            settle(net)
        if not has_event_before(net, until_s, until_number):
            return DONE
        if net.event_room < net.reserve:
            return NEEDS_ROOM
        status = _step(net)
        if status != DONE:
            return status
    return DONE


def _step(net: Network) -> int:
    net.now = net.next_s
    net.steps += 1
    kind = net.next_kind
    who = pop_event(net)
    if kind == ARRIVAL:
        net.who = who
        return HAS_ARRIVED
    if kind == WAKE:
        end_flows(net)
        while net.ended != NONE:
            number = net.ended
            ended = transfer_at(net, number)
            net.ended = ended.left
            if ended.connection == NONE:
                note(net, HAS_ENDED, number)
            else:
                on_sent(net, number)
    elif kind == ROUND_END:
        on_round_end(net, connection_at(net, who))
    elif kind == RETRANSMISSION:
        on_retransmission(net, connection_at(net, who))
    return _status(net)
