"""Weighted max-min fair sharing of links by flow classes; ``classes`` describes the model.

Max-min fairness: no flow's rate can be raised without lowering the rate of a flow whose rate per weight is not larger.
Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2) finds these rates. It raises one level, the rate per
weight, for all classes together. It freezes the classes of a link when the link is full, and a class when it meets its
own limit, and continues with the others. A heap holds the levels at which this would happen. The level of a link rises
when other links freeze some of its classes, so it is checked again when it is taken from the heap.

``solve`` solves after changes, for the links and classes that they can affect. It skips whatever cannot have changed:

* a class on links of its own has the rate min(cap, own / flows), whatever the others do;
* a flow that takes the place of one that has just ended in its class changes no rate;
* a cap that limits a class neither before nor after its change alters nothing (``_cap_is_slack``);
* one shared link that holds all classes (one port that all senders send to) is not filled step by step, and needs no
  heap (``_level_of_port``).

Fields of the network count the entries of the solver's lists: ``changes`` (changed classes and links), ``reached``
(links of the component), ``visited`` (its classes), ``ends`` (classes with a flow, in a heap by the end of the next).
"""

# ruff: noqa: PLR1730  (min and max are slow here)

from __future__ import annotations

import math

from testbed.simulation.flows.pools import (
    arrival_at,
    change_at,
    end_at,
    flow_class_at,
    hop_at,
    level_at,
    link_at,
    reached_at,
    visit_at,
)
from testbed.simulation.flows.records import FlowClass, Link, Network
from testbed.simulation.machine.record import NONE

SAME = 1e-12  # levels or instants with a smaller relative difference are equal (thousands of rounding errors of 2e-16)
_SPARE = 1e-9  # a cap that exceeds a rate by this relative difference certainly does not limit it

# ---- a binary heap of levels -----------------------------------------------------------------------------------------


def _push_level(net: Network, size: int, level: float, what: int) -> int:
    """Add a level. Return the new size."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        above = level_at(net, parent)
        if above.level <= level:
            break
        it = level_at(net, place)
        it.level = above.level
        it.what = above.what
        place = parent
    it = level_at(net, place)
    it.level = level
    it.what = what
    return size + 1


def _pop_level(net: Network, size: int) -> int:
    """Remove the smallest level. Return the new size."""
    size -= 1
    if size == 0:
        return 0
    last = level_at(net, size)
    level = last.level
    what = last.what
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        below = level_at(net, child)
        if child + 1 < size:
            right = level_at(net, child + 1)
            if right.level < below.level:
                child += 1
                below = right
        if below.level >= level:
            break
        it = level_at(net, place)
        it.level = below.level
        it.what = below.what
        place = child
    it = level_at(net, place)
    it.level = level
    it.what = what
    return size


# ---- a binary heap of the ends of each class's next flow; a class moves in it when its rate changes ------------------


def _put_end(net: Network, place: int, at_s: float, number: int) -> None:
    it = end_at(net, place)
    it.at_s = at_s
    it.flow_class = number
    flow_class_at(net, number).place = place


def _settle(net: Network, number: int, it: FlowClass) -> None:
    """Move a class to its place in the heap of ends; add it if it is not there."""
    place = it.place
    if place <= 0:
        net.ends += 1
        place = net.ends
    key = it.ends_s
    moved = False
    while place > 1:
        parent = place >> 1
        above = end_at(net, parent)
        if above.at_s <= key:
            break
        _put_end(net, place, above.at_s, above.flow_class)
        place = parent
        moved = True
    while not moved:
        child = 2 * place
        if child > net.ends:
            break
        below = end_at(net, child)
        if child < net.ends:
            right = end_at(net, child + 1)
            if right.at_s < below.at_s:
                child += 1
                below = right
        if below.at_s >= key:
            break
        _put_end(net, place, below.at_s, below.flow_class)
        place = child
    _put_end(net, place, key, number)


def drop_end(net: Network, it: FlowClass) -> None:
    """Remove a class from the heap of ends, if it is there."""
    place = it.place
    if place <= 0:
        return
    last = end_at(net, net.ends).flow_class
    net.ends -= 1
    it.place = 0
    other = flow_class_at(net, last)
    if other.place > 0:
        _put_end(net, place, other.ends_s, last)
        _settle(net, last, other)


def next_end_s(net: Network) -> float:
    """Return when the next flow ends."""
    return end_at(net, 1).at_s if net.ends > 0 else math.inf


def _advance(net: Network, it: FlowClass, rate: float) -> None:
    """Add the service of a class since its last update, S += rate · Δt; set the new rate; compute when its next flow
    ends: now + (top - S) / rate."""
    if net.now > it.updated_s:
        it.served += it.rate * (net.now - it.updated_s)
    it.updated_s = net.now
    it.rate = rate
    left = it.top - it.served
    if left < 0.0:
        left = 0.0
    if rate > 0.0:
        it.ends_s = net.now + left / rate
    else:
        it.ends_s = math.inf
    if it.place > 0:
        end_at(net, it.place).at_s = it.ends_s


def take_due(net: Network) -> int:
    """Remove a class whose next flow ends now from the heap, and update its service. Return it, or -1 if none is."""
    if net.ends == 0:
        return NONE
    first = end_at(net, 1)
    if first.at_s > net.now * (1.0 + SAME):
        return NONE
    number = first.flow_class
    it = flow_class_at(net, number)
    if net.now > it.updated_s:
        it.served += it.rate * (net.now - it.updated_s)
        it.updated_s = net.now
    if it.served < it.top:
        it.served = it.top
    drop_end(net, it)
    return number


# ---- progressive filling ---------------------------------------------------------------------------------------------


def _reach(net: Network, number: int) -> None:
    """Add a link to those that this solve visits, unless it is there already."""
    link = link_at(net, number)
    if link.mark != net.stamp:
        link.mark = net.stamp
        reached_at(net, net.reached).link = number
        net.reached += 1


def _find_component(net: Network) -> None:
    """Extend the reached links to the connected component: all links and classes that are connected by shared links.

    A link with only one active class connects nothing; it only limits that class.
    """
    net.visited = 0
    i = 0
    while i < net.reached:
        link = link_at(net, reached_at(net, i).link)
        i += 1
        link.left = link.capacity
        weights = 0.0
        classes = 0
        known = 1 if link.count > 1 else 0  # known shared links of these classes: at most the present one
        place = link.head
        while place >= 0:
            hop = hop_at(net, place)
            it = flow_class_at(net, hop.flow_class)
            if it.mark != net.stamp:
                _visit(net, hop.flow_class, it, known)
            weights += it.weight * it.flows
            classes += 1
            place = hop.after
        link.weights = weights
        link.open = classes


def _visit(net: Network, number: int, it: FlowClass, known: int) -> None:
    it.mark = net.stamp
    it.total = -1.0
    limit = it.cap * it.flows
    if it.own < limit:
        limit = it.own
    it.limit = limit
    visit = visit_at(net, net.visited)
    net.visited += 1
    visit.flow_class = number
    visit.limit = limit
    visit.share = it.weight * it.flows
    if it.shared > known:
        for place in range(it.first_hop, it.last_hop):
            beside = hop_at(net, place).link
            if link_at(net, beside).count > 1:
                _reach(net, beside)


def _port(net: Network) -> int:
    """Return the link that all visited classes share, if none of them shares another link; otherwise -1."""
    port = NONE
    for i in range(net.reached):
        number = reached_at(net, i).link
        if link_at(net, number).count > 1:
            if port >= 0:
                return NONE
            port = number
    if port < 0 or link_at(net, port).open != net.visited:
        return NONE
    return port


def _level_of_port(net: Network, port: Link) -> float:
    """Return the level at which ``port`` is full; infinite if the classes' own limits do not fill it.

    It solves sum of min(limit, level · share) = capacity by Newton's method: classes whose limit is below their share
    at the present level get their limit, and the others share what is left, at a new level. The search begins at the
    level of the last solve. Its first step may go down; then the level rises until no further class meets its limit.
    """
    capacity = port.left
    lowest = capacity / port.weights
    level = port.level
    rises = False
    if level <= lowest:
        level = lowest
        rises = True
    while True:
        left = capacity
        weights = 0.0
        highest = level * (1.0 + 2.0 * SAME)
        for i in range(net.visited):
            visit = visit_at(net, i)
            if visit.limit <= highest * visit.share:
                left -= visit.limit
            else:
                weights += visit.share
        port.level = level
        if rises and weights == 0.0:
            return math.inf
        new = lowest
        if weights > 0.0 and left / weights > lowest:
            new = left / weights
        if new <= level and (rises or left == capacity):
            return new
        level = new
        rises = True


def _freeze(net: Network, it: FlowClass, total: float, full: int) -> None:
    """Give a class the rate ``total`` (of all its flows), and subtract that from its shared links.

    ``full`` is the link that limits it, or -1. All classes of that link are frozen together, so it needs no update.
    """
    it.total = total
    if full >= 0 and it.shared == 1:
        return
    weight = it.weight * it.flows
    for place in range(it.first_hop, it.last_hop):
        number = hop_at(net, place).link
        link = link_at(net, number)
        if number != full and link.count > 1:
            link.left -= total
            link.weights -= weight
            link.open -= 1


def _push_all_levels(net: Network) -> int:
    """Fill the heap with the levels at which links are full and classes meet their limits. Return its size."""
    size = 0
    for i in range(net.reached):
        number = reached_at(net, i).link
        link = link_at(net, number)
        if link.count > 1:
            size = _push_level(net, size, link.left / link.weights, number)
    for i in range(net.visited):
        number = visit_at(net, i).flow_class
        it = flow_class_at(net, number)
        if it.limit < math.inf:
            size = _push_level(net, size, it.limit / (it.weight * it.flows), -1 - number)
    return size


def _fill(net: Network) -> None:
    """Progressive filling of the component: sets ``total`` of each of its classes."""
    size = _push_all_levels(net)
    left = net.visited
    while left > 0:
        first = level_at(net, 0)
        level = first.level
        what = first.what
        size = _pop_level(net, size)
        if what < 0:
            it = flow_class_at(net, -1 - what)
            if it.total < 0.0:
                _freeze(net, it, it.limit, NONE)
                left -= 1
            continue
        link = link_at(net, what)
        if link.open == 0:
            continue
        current = level
        if link.weights > 0.0:  # otherwise rounding has made it 0, and ``level`` is right
            current = link.left / link.weights
        if current > level * (1.0 + SAME):  # classes frozen since, at lower levels, have left more for the others
            size = _push_level(net, size, current, what)
            continue
        place = link.head
        while place >= 0:
            hop = hop_at(net, place)
            it = flow_class_at(net, hop.flow_class)
            if it.total < 0.0:
                _freeze(net, it, level * it.weight * it.flows, what)
                left -= 1
            place = hop.after


# ---- changes ---------------------------------------------------------------------------------------------------------


def _count_shared(net: Network, it: FlowClass) -> None:
    """Recount the links that a class shares, and find the least capacity of its other links."""
    shared = 0
    own = math.inf
    for place in range(it.first_hop, it.last_hop):
        link = link_at(net, hop_at(net, place).link)
        if link.count != 1:
            shared += 1
        elif link.capacity < own:
            own = link.capacity
    it.shared = shared
    it.own = own


def _count_shared_of_only(net: Network, link: Link) -> None:
    """Recount the links of the only class of a link, or of the first one."""
    _count_shared(net, flow_class_at(net, hop_at(net, link.head).flow_class))


def _link(net: Network, it: FlowClass) -> None:
    """Add a class to the lists of its links."""
    it.linked = True
    for place in range(it.first_hop, it.last_hop):
        hop = hop_at(net, place)
        link = link_at(net, hop.link)
        head = link.head
        hop.after = head
        hop.before = NONE
        if head >= 0:
            hop_at(net, head).before = place
        link.count += 1
        if link.count == 2:
            _count_shared_of_only(net, link)
        link.head = place
    _count_shared(net, it)


def _unlink(net: Network, it: FlowClass) -> None:
    """Remove a class, whose flows have all ended, from the lists of its links."""
    it.linked = False
    for place in range(it.first_hop, it.last_hop):
        hop = hop_at(net, place)
        link = link_at(net, hop.link)
        if hop.before >= 0:
            hop_at(net, hop.before).after = hop.after
        else:
            link.head = hop.after
        if hop.after >= 0:
            hop_at(net, hop.after).before = hop.before
        link.count -= 1
        if link.count == 1:
            _count_shared_of_only(net, link)


def remove(net: Network, it: FlowClass) -> None:
    """Remove a class, whose flows have all ended, from all lists, and reset its rate and service."""
    _unlink(net, it)
    drop_end(net, it)
    it.rate = 0.0
    it.served = 0.0
    it.ends_s = math.inf


def _cap_is_slack(it: FlowClass) -> bool:
    """Whether only the cap of a class has changed, and neither the old nor the new cap limits it."""
    rate = it.rate * (1.0 + _SPARE)
    return it.flows > 0.0 and it.flows == it.solved_flows and rate < it.cap and rate < it.solved_cap


def _apply_changes(net: Network) -> None:
    """Link classes that became active, remove those that ended, and update those that share nothing.

    Add the links that need a solve to the reached ones.
    """
    net.reached = 0
    for i in range(net.changes):  # update all lists first, as the second loop needs them complete
        what = change_at(net, i).what
        if what < 0:
            link = link_at(net, -1 - what)
            if link.count == 1:
                _count_shared_of_only(net, link)
            continue
        it = flow_class_at(net, what)
        if it.flows > 0.0 and not it.linked:
            it.updated_s = net.now
            _link(net, it)
    for i in range(net.changes):
        what = change_at(net, i).what
        if what < 0:
            _reach(net, -1 - what)
        elif flow_class_at(net, what).linked:
            _apply_change(net, what, flow_class_at(net, what))


def _apply_change(net: Network, number: int, it: FlowClass) -> None:
    if it.flows > 0.0 and it.flows == it.solved_flows and it.cap == it.solved_cap:
        _advance(net, it, it.rate)  # a new flow has taken the place of one that ended
        _settle(net, number, it)
        return
    shared = it.shared > 0
    if net.changes == 1 and shared and it.updated_s != net.now and it.ends_s != math.inf and _cap_is_slack(it):
        it.solved_cap = it.cap
        return
    it.solved_flows = it.flows
    it.solved_cap = it.cap
    if it.flows == 0.0:
        remove(net, it)
    elif not shared:
        rate = it.own / it.flows
        if it.cap < rate:
            rate = it.cap
        _advance(net, it, rate)
        _settle(net, number, it)
    if shared:
        for place in range(it.first_hop, it.last_hop):
            _reach(net, hop_at(net, place).link)


def _begin_with_shared(net: Network) -> None:
    """Put a shared link first, so that sums over a port follow the order of its list, whatever has changed."""
    first = reached_at(net, 0)
    for i in range(1, net.reached):
        other = reached_at(net, i)
        if link_at(net, other.link).count > link_at(net, first.link).count:
            number = first.link
            first.link = other.link
            other.link = number
    link = link_at(net, first.link)
    if link.count != 1:
        return
    it = flow_class_at(net, hop_at(net, link.head).flow_class)
    for place in range(it.first_hop, it.last_hop):
        number = hop_at(net, place).link
        if link_at(net, number).count > 1:
            link_at(net, number).mark = net.stamp
            reached_at(net, net.reached).link = first.link
            net.reached += 1
            first.link = number
            return


def _compute_rates(net: Network) -> None:
    """Compute new rates for the component of the reached links."""
    _begin_with_shared(net)
    _find_component(net)
    level = 0.0
    port = _port(net)
    if port >= 0:
        level = _level_of_port(net, link_at(net, port))
    else:
        _fill(net)
    for i in range(net.visited):
        visit = visit_at(net, i)
        it = flow_class_at(net, visit.flow_class)
        total = it.total
        if port >= 0:
            total = level * it.weight * it.flows
            if visit.limit < total:
                total = visit.limit
        rate = total / it.flows
        it.solved_flows = it.flows
        it.solved_cap = it.cap
        if rate == it.rate and it.updated_s != net.now and it.ends_s != math.inf:
            continue
        _advance(net, it, rate)
        if _is_misplaced(net, it):  # most classes keep their place; calling _settle for each would be slow
            _settle(net, visit.flow_class, it)


def _is_misplaced(net: Network, it: FlowClass) -> bool:
    place = it.place
    if place <= 0:
        return True
    if place > 1 and end_at(net, place >> 1).at_s > it.ends_s:
        return True
    if 2 * place <= net.ends and end_at(net, 2 * place).at_s < it.ends_s:
        return True
    return 2 * place < net.ends and end_at(net, 2 * place + 1).at_s < it.ends_s


def solve(net: Network) -> float:
    """Compute new rates after the changes. Return when the next flow ends."""
    net.stamp += 1
    _apply_changes(net)
    if net.reached > 0:
        _compute_rates(net)
        net.steps += net.visited >> 3
    return next_end_s(net)


# ---- flows that are all known in advance -----------------------------------------------------------------------------


def _begin_flow(net: Network, number: int, flows: float, top: float) -> None:
    """Begin ``flows`` flows in an idle class, or end its flows if that is 0."""
    it = flow_class_at(net, number)
    it.flows = flows
    it.top = top
    change_at(net, net.changes).what = number
    net.changes += 1


def simulate(net: Network, count: int, until_s: float) -> int:
    """Simulate ``count`` flows until ``until_s``, then remove those that are left. Return how many ended.

    Flow ``i`` is in class ``i``, which must be idle. Its ``Arrival`` says when it ended (infinite: not by ``until_s``)
    and how many bytes are left; together the ``Arrival`` records say in which order the flows ended.
    """
    started = 0
    ended = 0
    next_s = math.inf
    while started < count or next_s < math.inf:
        now = next_s
        if started < count and arrival_at(net, started).begin_s < now:
            now = arrival_at(net, started).begin_s
        if now > until_s:
            break
        net.changes = 0
        net.now = now
        if now == next_s:
            number = take_due(net)
            while number != NONE:
                it = arrival_at(net, number)
                it.end_s = now
                it.left = 0.0
                arrival_at(net, ended).ended = number
                ended += 1
                _begin_flow(net, number, 0.0, math.inf)
                number = take_due(net)
        while started < count and arrival_at(net, started).begin_s <= now:
            it = arrival_at(net, started)
            _begin_flow(net, started, it.flows, it.left)
            started += 1
        next_s = solve(net)
    if ended < started:
        _remove_flows(net, started, until_s)
    net.changes = 0
    return ended


def _remove_flows(net: Network, started: int, now: float) -> None:
    """Remove all flows that have not ended, and set how many bytes they had left."""
    net.now = now
    net.changes = 0
    for number in range(started):
        it = flow_class_at(net, number)
        if it.flows > 0.0:
            left = arrival_at(net, number).left - it.served - it.rate * (now - it.updated_s)
            arrival_at(net, number).left = left if left > 0.0 else 0.0
            _begin_flow(net, number, 0.0, math.inf)
    solve(net)
