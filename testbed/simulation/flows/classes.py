"""A flow-level network: flows share links by weighted max-min fairness, and every capacity may change at any time.

It models rates instead of packets. A rate changes only when a flow starts or ends, or a capacity, cap or weight
changes. Between such events a flow of rate r carries r · Δt bytes, so the next completion is known (Bertsekas and
Gallager, Data Networks, 6.5.2; the fluid models of SimGrid, Casanova et al. 2014, work alike).

Flows of the same path, cap and weight form a *flow class*. They always have the same rate, so a class keeps one number,
the service S(t) = ∫ rate dt that each of its flows has had. A flow of size M that starts at s ends when S = S(s) + M,
its *tag* (virtual service as in weighted fair queueing: Parekh and Gallager 1993). A class keeps its flows in a heap of
tags; the solver sees only classes, not flows. Changes within one instant are solved once, at the end of the instant,
for the links and classes that they can affect.

If a class shares none of its links, the end of its flows changes nothing for other classes. Then the class is *parked*:
idle, but still in the solver's lists, until it continues or another class needs a link of its path. That saves two
updates of these lists for each message.
"""

from __future__ import annotations

import math

from testbed.simulation.flows.heap import with_transfer, without_first
from testbed.simulation.flows.pools import change_at, flow_class_at, hop_at, link_at, transfer_at
from testbed.simulation.flows.records import FlowClass, Network
from testbed.simulation.flows.solver import SAME, next_end_s, remove, solve, take_due
from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE

WAKE = 2  # event: a flow ends
_NEVER_S = 1e9  # no wake-up is scheduled later than this; such flows, over a link that is down, end after a change
_TAG_TOLERANCE_BYTES = 1e-6  # flows whose tags differ by less end together: rounding, not bytes


def start(net: Network, number: int, transfer: int) -> None:
    """Start the flows of a transfer in a class, each with the transfer's size."""
    flow = flow_class_at(net, number)
    it = transfer_at(net, transfer)
    served = 0.0
    if flow.idle:
        _begin(net, number, flow)
    else:
        served = _served(net.now, flow)
        flow.served = served
        flow.updated_s = max(net.now, flow.updated_s)
    net.sequence += 1
    flow.active += it.flows
    flow.started += served * it.flows
    net.active += it.flows
    if flow.watched and not flow.counts:
        _let_count(net, number, flow)
    it.key = served + it.size_bytes
    it.number = net.sequence
    flow.heap = with_transfer(net, flow.heap, transfer)
    touch(net, number, flow)


def _begin(net: Network, number: int, flow: FlowClass) -> None:
    """Make a class active, and remove other classes that are parked on its links from the solver's lists."""
    flow.idle = False
    flow.served = 0.0
    flow.updated_s = net.now
    if flow.parked:
        flow.parked = False
        return
    flow.shares = False
    for place in range(flow.first_hop, flow.last_hop):
        link = link_at(net, hop_at(net, place).link)
        before = link.latest
        link.latest = number
        if before not in (NONE, number):
            other = flow_class_at(net, before)
            if other.parked:
                _unpark(net, other)
            elif not other.idle:
                other.shares = True
                flow.shares = True
        if link.count > 0:
            flow.shares = True


def _unpark(net: Network, flow: FlowClass) -> None:
    """Remove a parked class from the solver's lists."""
    flow.parked = False
    remove(net, flow)


def touch(net: Network, number: int, flow: FlowClass) -> None:
    """Note that a class has changed, for the end of this instant."""
    if not flow.dirty:
        flow.dirty = True
        _add_change(net, number)


def _add_change(net: Network, what: int) -> None:
    change_at(net, net.changes).what = what
    net.changes += 1
    net.unsettled = True


def set_cap(net: Network, number: int, cap: float) -> None:
    """Limit each flow of a class from now on."""
    flow = flow_class_at(net, number)
    if flow.cap != cap:
        flow.cap = cap
        touch(net, number, flow)


def set_weight(net: Network, number: int, weight: float) -> None:
    """Set the weight of each flow of a class from now on."""
    flow = flow_class_at(net, number)
    if flow.weight != weight:
        flow.weight = weight
        flow.solved_flows = 0.0  # differs from any number of flows, which forces a solve
        if flow.active:
            touch(net, number, flow)


def set_capacity(net: Network, number: int, capacity: float) -> None:
    """Set a link's capacity from now on."""
    link = link_at(net, number)
    link.capacity = capacity
    if link.latest != NONE:
        latest = flow_class_at(net, link.latest)
        if latest.parked:
            _unpark(net, latest)
    if not link.dirty:
        link.dirty = True
        _add_change(net, -1 - number)


def _served(now: float, flow: FlowClass) -> float:
    elapsed_s = now - flow.updated_s
    return flow.served + flow.rate * elapsed_s if elapsed_s > 0 else flow.served


def delivered_by(now: float, flow: FlowClass) -> float:
    """Return the bytes that all flows of a class together have carried until now."""
    if not flow.active:
        return flow.delivered
    return flow.delivered + flow.active * _served(now, flow) - flow.started


def left_bytes(net: Network, flow: FlowClass) -> float:
    """Return how many bytes are left of the class's flow that ends next; 0 if no flow is active."""
    return transfer_at(net, flow.heap).key - _served(net.now, flow) if flow.active else 0.0


def shorten(net: Network, number: int, less_bytes: float) -> None:
    """Shorten the only flows of a class by ``less_bytes``, which must be less than their ``left_bytes``."""
    flow = flow_class_at(net, number)
    it = transfer_at(net, flow.heap)
    it.key -= less_bytes
    it.size_bytes -= less_bytes
    touch(net, number, flow)


# ---- the end of an instant -------------------------------------------------------------------------------------------


def settle(net: Network) -> None:
    """End an instant at which something has changed."""
    net.unsettled = False
    next_s = _solve_changes(net) if _needs_solve(net) else _park(net)
    net.changes = 0
    if next_s < net.wake_s and next_s < _NEVER_S:  # a wake-up at _NEVER_S would stay scheduled after becoming stale
        net.wake_s = next_s
        net.wakes += 1
        schedule(net, next_s, WAKE, 0)


def _needs_solve(net: Network) -> bool:
    """Whether there is any change other than the end of classes that shared none of their links."""
    for i in range(net.changes):
        what = change_at(net, i).what
        if what < 0 or not net.parks:
            return True
        flow = flow_class_at(net, what)
        if flow.active or flow.shares or flow.idle:
            return True
    return False


def _solve_changes(net: Network) -> float:
    """Compute new rates after the changes. Return when the next flow ends."""
    for i in range(net.changes):
        what = change_at(net, i).what
        if what < 0:
            link_at(net, -1 - what).dirty = False
            continue
        flow = flow_class_at(net, what)
        flow.dirty = False
        if flow.active:
            flow.flows = float(flow.active)
            flow.top = transfer_at(net, flow.heap).key
        else:
            flow.idle = True
            flow.parked = False
            flow.flows = 0.0
            flow.top = math.inf
    return solve(net)


def _park(net: Network) -> float:
    """Park the classes that have changed. Return when the next flow ends."""
    for i in range(net.changes):
        flow = flow_class_at(net, change_at(net, i).what)
        flow.idle = True
        flow.parked = True
        flow.dirty = False
        flow.solved_flows = 0.0  # differs from any number of flows, which forces a solve when the class continues
    return next_end_s(net)


# ---- the end of flows ------------------------------------------------------------------------------------------------


def end_flows(net: Network) -> None:
    """Handle a wake-up: unless it is stale, remove all flows that end now, and list them in ``Network.ended``."""
    net.wakes -= 1
    if net.now != net.wake_s:
        return  # stale: an earlier end has been found since
    net.wake_s = math.inf
    last = NONE
    number = take_due(net)
    while number != NONE:
        last = _end_flows_of(net, number, last)
        number = take_due(net)
    net.unsettled = True  # schedules the next wake-up even if rounding has let no flow end


def _end_flows_of(net: Network, number: int, last: int) -> int:
    """Remove the flows of a class that end now, and append them to the list after ``last``. Return the new last one."""
    flow = flow_class_at(net, number)
    until = flow.served * (1 + SAME) + _TAG_TOLERANCE_BYTES
    while flow.heap != NONE and transfer_at(net, flow.heap).key <= until:
        transfer = flow.heap
        flow.heap = without_first(net, transfer)
        it = transfer_at(net, transfer)
        flow.active -= it.flows
        flow.started -= (it.key - it.size_bytes) * it.flows
        flow.delivered += it.size_bytes * it.flows
        net.active -= it.flows
        it.left = NONE
        if last == NONE:
            net.ended = transfer
        else:
            transfer_at(net, last).left = transfer
        last = transfer
    if not flow.active:
        flow.started = 0.0
    touch(net, number, flow)
    return last


# ---- bytes that links have carried -----------------------------------------------------------------------------------


def _let_count(net: Network, number: int, flow: FlowClass) -> None:
    """Append a class to the list that the next ``count`` goes through."""
    flow.counts = True
    flow.counts_next = NONE
    if net.counts_first == NONE:
        net.counts_first = number
    else:
        flow_class_at(net, net.counts_last).counts_next = number
    net.counts_last = number


def count(net: Network) -> None:
    """Add the bytes that watched classes have carried since the last count to their links."""
    number = net.counts_first
    net.counts_first = NONE
    while number != NONE:
        flow = flow_class_at(net, number)
        total = delivered_by(net.now, flow)
        for place in range(flow.first_hop, flow.last_hop):
            link_at(net, hop_at(net, place).link).carried += total - flow.counted
        flow.counted = total
        flow.counts = False
        following = flow.counts_next
        if flow.active:
            _let_count(net, number, flow)
        number = following
