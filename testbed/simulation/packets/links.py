"""A WAN link as the emulator makes it, packet by packet: a rate, drop-tail queues, a delay, random losses.

The rate is that of an HTB class with a token bucket of B bytes (``burst_bytes``), filled at rate r. A packet leaves as
soon as the bucket is not in debt, and then takes its bytes out of the bucket. So after silence, all packets that begin
within the first B bytes leave at once. In terms of time: let z be the instant at which the bucket is empty. A packet of
s bytes leaves at t >= z, and z becomes max(z, t - B/r) + s/r (the generic cell rate algorithm, ITU-T I.371). A new rate
also applies to the packets that already wait.

A packet that does not fit into the queue is dropped. Each channel has its own queue. They are served in strict order:
reliable connections (0) before the channels of best-effort messages.
"""

from __future__ import annotations

import math

from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.events import ARRIVED, AT_LINK, AT_PORT, LINK_TIMER
from testbed.simulation.packets.generator import draw
from testbed.simulation.packets.pools import (
    datagrams_at,
    free_packet,
    hop_at,
    link_at,
    packet_at,
    path_at,
    port_at,
    queue_at,
)
from testbed.simulation.packets.records import Link, Network

# Kinds of packets
DATA = 0
ACKNOWLEDGEMENT = 1
LAN_FRAME = 2
DATAGRAM = 3


def leaves_port_s(net: Network, port: int, size_bytes: int) -> float:
    """Return when a packet leaves a port at which it arrives now. Ports never drop packets."""
    it = port_at(net, port)
    at_s = max(net.now, it.empty_s)
    it.empty_s = max(it.empty_s, at_s - it.burst_s) + size_bytes * it.seconds_per_byte
    return at_s


def send_packet(net: Network, path: int, packet: int) -> float:
    """Send a frame. Return when it leaves the sender's port."""
    way = path_at(net, path)
    it = packet_at(net, packet)
    it.hop = way.first_hop
    it.last_hop = way.last_hop
    it.in_port = way.in_port
    leaves_s = leaves_port_s(net, way.out_port, it.size_bytes)
    at_s = leaves_s + way.lan_delay_s
    if way.first_hop == way.last_hop:
        # Even a LAN without delay needs an event: an arrival makes the connection send again, which would recurse.
        schedule(net, at_s, AT_PORT, packet)
    elif at_s > net.now:
        schedule(net, at_s, AT_LINK, packet)
    else:
        arrive_at_link(net, packet)
    return leaves_s


def arrive_at_link(net: Network, packet: int) -> None:
    """Let the packet's next link send, queue or drop it."""
    it = packet_at(net, packet)
    number = hop_at(net, it.hop).link
    it.hop += 1
    link = link_at(net, number)
    if link.empty_s <= net.now and link.seconds_per_byte < math.inf and not link.backlog_bytes:
        _leave(net, link, packet)
        return
    queue = queue_at(net, link.first_queue + it.channel)
    if queue.size_bytes + it.size_bytes > link.limit_bytes:
        link.dropped_packets += 1
        _lose(net, packet)
        return
    it.next = NONE
    if queue.head == NONE:
        queue.head = packet
    else:
        packet_at(net, queue.tail).next = packet
    queue.tail = packet
    queue.size_bytes += it.size_bytes
    link.backlog_bytes += it.size_bytes
    _look_later(net, link, number)


def _look_later(net: Network, link: Link, number: int) -> None:
    at_s = max(link.empty_s, net.now)
    if at_s < link.timer_s and link.seconds_per_byte < math.inf:
        link.timer_s = at_s
        schedule(net, at_s, LINK_TIMER, number)


def on_link_timer(net: Network, number: int) -> None:
    link = link_at(net, number)
    if link.timer_s == net.now:  # otherwise another time has been set since
        link.timer_s = math.inf
        serve_link(net, number)


def serve_link(net: Network, number: int) -> None:
    """Send the queued packets that the bucket lets pass. Nothing leaves while the rate is 0."""
    link = link_at(net, number)
    for channel in range(link.queues):
        queue = queue_at(net, link.first_queue + channel)
        while queue.head != NONE and link.empty_s <= net.now and link.seconds_per_byte < math.inf:
            packet = queue.head
            it = packet_at(net, packet)
            queue.head = it.next
            queue.size_bytes -= it.size_bytes
            link.backlog_bytes -= it.size_bytes
            _leave(net, link, packet)
        if queue.head != NONE:
            _look_later(net, link, number)
            return


def _leave(net: Network, link: Link, packet: int) -> None:
    it = packet_at(net, packet)
    link.empty_s = max(link.empty_s, net.now - link.burst_s) + it.size_bytes * link.seconds_per_byte
    link.sent_bytes += it.size_bytes
    if link.losses > 0.0 and draw(net, link.generator) < link.losses:
        link.lost_packets += 1
        _lose(net, packet)
        return
    link.last_arrival_s = max(link.last_arrival_s, net.now + link.delay_s)  # packets never overtake each other
    schedule(net, link.last_arrival_s, AT_LINK if it.hop < it.last_hop else AT_PORT, packet)


def _lose(net: Network, packet: int) -> None:
    it = packet_at(net, packet)
    if it.kind == DATAGRAM:
        end_datagram(net, it.owner)
    free_packet(net, packet)


def end_datagram(net: Network, index: int) -> None:
    """Note that a datagram of this message has arrived or is lost."""
    message = datagrams_at(net, index)
    message.left -= 1
    if not message.left:
        message.next = net.ended_datagrams
        net.ended_datagrams = index


def pass_port(net: Network, packet: int) -> bool:
    """Let a packet pass its receiver's port. Return whether it passes at once; otherwise ARRIVED happens later."""
    it = packet_at(net, packet)
    at_s = leaves_port_s(net, it.in_port, it.size_bytes)
    if at_s > net.now:
        schedule(net, at_s, ARRIVED, packet)
        return False
    return True
