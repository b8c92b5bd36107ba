"""The sending end of a connection inside a data centre: frames through two ports, and slow start.

A LAN loses nothing, so the congestion window only grows: by the bytes that arrive, as long as the window limits the
connection (Linux: ``tcp_is_cwnd_limited``). Through an idle port, the window grows within microseconds. If other nodes'
data waits at the port, a new connection sends ten segments first, and twice as many after each round trip. Hosts on a
fast LAN hand frames of 64 KiB to their ports (segmentation offload). At most two frames of a connection wait at its
port (``host_queue``), so that data written meanwhile fills the next frame.
"""

from __future__ import annotations

from testbed.simulation.packets.host_queue import is_port_full, send_frame
from testbed.simulation.packets.links import LAN_FRAME
from testbed.simulation.packets.pools import keep_room, packet_at, take_packet
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.segment import HEADER_BYTES, SEGMENT_BYTES

_HOST_FRAMES = 2


def push_frames(net: Network, it: Connection, more: bool) -> None:
    """Send frames while window and port have room. ``more``: more data is being written, so send full frames only."""
    limit_bytes = float(_HOST_FRAMES * it.lan_segments * (SEGMENT_BYTES + HEADER_BYTES))
    least_bytes = it.lan_segments * SEGMENT_BYTES if more else 1
    while it.unsent_bytes >= least_bytes and it.under_way_bytes < it.lan_window_bytes:
        if is_port_full(net, it, limit_bytes):
            return
        _send_lan_frame(net, it)


def _send_lan_frame(net: Network, it: Connection) -> None:
    room_bytes = max(SEGMENT_BYTES, int(it.lan_window_bytes) - it.under_way_bytes)
    size_bytes = min(it.unsent_bytes, it.lan_segments * SEGMENT_BYTES, room_bytes)
    it.unsent_bytes -= size_bytes
    it.under_way_bytes += size_bytes
    it.most_bytes = max(it.most_bytes, it.under_way_bytes)
    segments = -(-size_bytes // SEGMENT_BYTES)
    number = take_packet(net)
    packet = packet_at(net, number)
    packet.size_bytes = size_bytes + segments * HEADER_BYTES
    packet.channel = 0
    packet.kind = LAN_FRAME
    packet.owner = it.index
    packet.number = size_bytes
    send_frame(net, it, number)


def take_lan_frame(net: Network, it: Connection, packet: int) -> None:
    """Take a frame that has arrived, and let the window grow."""
    size_bytes = packet_at(net, packet).number
    it.under_way_bytes -= size_bytes
    it.received_bytes += size_bytes
    if it.grows_unused or it.lan_window_bytes < 2 * it.most_bytes:
        it.lan_window_bytes += size_bytes
        keep_room(net, int(it.lan_window_bytes) // (it.lan_segments * SEGMENT_BYTES))
