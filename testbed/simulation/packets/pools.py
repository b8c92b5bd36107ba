"""How the functions of this package access records: by index, and through lists of free records.

In compiled code, the functions of the first group access arrays in memory instead (``compiled``).
"""

from __future__ import annotations

from testbed.simulation.packets.records import (
    Connection,
    Datagrams,
    Frame,
    Hop,
    Link,
    Network,
    Packet,
    Path,
    Port,
    Queue,
    Segment,
)


def packet_at(net: Network, index: int) -> Packet:
    return net.packet_list[index]


def segment_at(net: Network, index: int) -> Segment:
    return net.segment_list[index]


def frame_at(net: Network, index: int) -> Frame:
    return net.frame_list[index]


def datagrams_at(net: Network, index: int) -> Datagrams:
    return net.datagrams_list[index]


def queue_at(net: Network, index: int) -> Queue:
    return net.queue_list[index]


def port_at(net: Network, index: int) -> Port:
    return net.port_list[index]


def hop_at(net: Network, index: int) -> Hop:
    return net.hop_list[index]


def path_at(net: Network, index: int) -> Path:
    return net.path_list[index]


def link_at(net: Network, index: int) -> Link:
    return net.link_list[index]


def connection_at(net: Network, index: int) -> Connection:
    return net.connection_list[index]


def word_at(net: Network, index: int) -> int:
    word: int = net.word_list[index]
    return word


def set_word(net: Network, index: int, word: int) -> None:
    net.word_list[index] = word


# ---- free records ----------------------------------------------------------------------------------------------------


def take_packet(net: Network) -> int:
    """Return a free packet. Before each event, at least ``Network.reserve`` packets are free."""
    index = net.free_packet
    net.free_packet = packet_at(net, index).next
    net.free_packets -= 1
    return index


def free_packet(net: Network, index: int) -> None:
    packet_at(net, index).next = net.free_packet
    net.free_packet = index
    net.free_packets += 1


def take_segment(net: Network) -> int:
    index = net.free_segment
    net.free_segment = segment_at(net, index).next
    net.free_segments -= 1
    return index


def free_segment(net: Network, index: int) -> None:
    segment_at(net, index).next = net.free_segment
    net.free_segment = index
    net.free_segments += 1


def take_frame(net: Network) -> int:
    index = net.free_frame
    net.free_frame = frame_at(net, index).next
    net.free_frames -= 1
    return index


def free_frame(net: Network, index: int) -> None:
    frame_at(net, index).next = net.free_frame
    net.free_frame = index
    net.free_frames += 1


def keep_room(net: Network, window: int) -> None:
    """Keep enough records free before each event for a connection with this window to send all that it may.

    An acknowledgement at most doubles a window, or restores an earlier one.
    """
    net.reserve = max(net.reserve, 2 * window + 64)


def has_room(net: Network) -> bool:
    """Whether the next event finds all records that it may need."""
    return (
        net.free_packets >= net.reserve
        and net.free_segments >= net.reserve
        and net.free_frames >= net.reserve
        and net.event_room >= 2 * net.reserve
    )
