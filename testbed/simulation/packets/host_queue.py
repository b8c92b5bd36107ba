"""Limits the frames of one connection that wait at its node's port (TCP small queues; ``tcp_small_queue_check``).

Each connection has its own limit; the port has none. So connections of one node that send at the same time take turns
at the port, burst by burst.
"""

from __future__ import annotations

from testbed.simulation.machine.events import schedule
from testbed.simulation.machine.record import NONE
from testbed.simulation.packets.events import PORT_HAS_ROOM
from testbed.simulation.packets.links import send_packet
from testbed.simulation.packets.pools import frame_at, free_frame, packet_at, take_frame
from testbed.simulation.packets.records import Connection, Network


def send_frame(net: Network, it: Connection, packet: int) -> None:
    """Send a packet of a connection, and note it if it has to wait at the port."""
    size_bytes = packet_at(net, packet).size_bytes
    leaves_s = send_packet(net, it.path, packet)
    if leaves_s <= net.now:
        return
    index = take_frame(net)
    frame = frame_at(net, index)
    frame.leaves_s = leaves_s
    frame.size_bytes = size_bytes
    frame.next = NONE
    if it.frame_head == NONE:
        it.frame_head = index
    else:
        frame_at(net, it.frame_tail).next = index
    it.frame_tail = index
    it.frames_bytes += size_bytes


def is_port_full(net: Network, it: Connection, limit_bytes: float) -> bool:
    """Whether at least ``limit_bytes`` wait. If so, PORT_HAS_ROOM happens as soon as less waits."""
    if not it.waits_for_port:
        forget_left(net, it)
        room_s = -1.0
        waiting_bytes = it.frames_bytes
        index = it.frame_head
        while index != NONE and waiting_bytes >= limit_bytes:
            frame = frame_at(net, index)
            room_s = frame.leaves_s
            waiting_bytes -= frame.size_bytes
            index = frame.next
        it.waits_for_port = room_s > net.now
        if it.waits_for_port:
            schedule(net, room_s, PORT_HAS_ROOM, it.index)
    return it.waits_for_port


def forget_left(net: Network, it: Connection) -> None:
    """Free the frames that have left the port."""
    while it.frame_head != NONE:
        index = it.frame_head
        frame = frame_at(net, index)
        if frame.leaves_s > net.now:
            return
        it.frames_bytes -= frame.size_bytes
        it.frame_head = frame.next
        free_frame(net, index)
