"""The socket of a connection, which takes messages from the process and pushes bytes to the sender.

The socket takes messages while fewer than TCP_NOTSENT_LOWAT bytes are unsent, and wakes its writer when fewer than half
of these are. It checks the limit only when it begins a buffer, and always fills a buffer that it has begun
(``tcp_sendmsg``). ``connection`` keeps the messages; functions here return a status when they need the next one.
"""

from __future__ import annotations

import math

from testbed.simulation.machine.events import DONE
from testbed.simulation.packets.lan_sender import push_frames
from testbed.simulation.packets.receiver import begin_receiver
from testbed.simulation.packets.records import Connection, Network
from testbed.simulation.packets.segment import SEGMENT_BYTES
from testbed.simulation.packets.sender import begin_sender, push_segments, wake_sender, write_stream

_BUFFER_BYTES = 45 * SEGMENT_BYTES  # whole segments in 64 KiB (``tcp_xmit_size_goal``)

# Statuses beside ``DONE``: the socket needs the next message; nothing is left to send, and the caller is to be told
NEEDS_MESSAGE = 1
IS_IDLE = 2


def open_socket(net: Network, it: Connection) -> None:
    """Open the socket of a connection that has been set up."""
    it.is_open = True
    it.message_ends_bytes = math.inf
    if not it.is_lan:
        begin_receiver(it, net.now)
        begin_sender(net, it)


def write(net: Network, it: Connection) -> int:
    """Let the process write."""
    it.is_writing = False
    if it.unsent_bytes < it.unsent_limit_bytes:
        return _fill(net, it)
    return _push_all(net, it)


def use_window(net: Network, it: Connection) -> int:
    """Use room in the window: send the socket's bytes, and let it take more."""
    status = _push_all(net, it)
    if status == DONE and 2 * it.unsent_bytes < it.unsent_limit_bytes and (it.left_bytes or it.waiting):
        status = _fill(net, it)
    return _end(net, it, status)


def _fill(net: Network, it: Connection) -> int:
    """Let the socket take messages while it has room, unless the process is stopped."""
    if net.now < it.stopped_until_s:
        return _push_all(net, it)
    return _take_messages(net, it)


def take_on(net: Network, it: Connection) -> int:
    """Continue to take messages, after the caller has provided the next one or found none."""
    return _end(net, it, _take_messages(net, it))


def _take_messages(net: Network, it: Connection) -> int:
    while it.left_bytes or it.waiting:
        if not it.left_bytes:
            return NEEDS_MESSAGE
        if not it.buffer_bytes or not it.unsent_bytes:
            if it.unsent_bytes >= it.unsent_limit_bytes:
                break
            it.buffer_bytes = _BUFFER_BYTES
        size_bytes = min(it.left_bytes, it.buffer_bytes)
        it.left_bytes -= size_bytes
        it.buffer_bytes -= size_bytes
        if it.is_lan:
            it.unsent_bytes += size_bytes
        else:
            write_stream(net, it, size_bytes)
        _push(net, it, True)  # written bytes leave as soon as they fill a segment
    return _push_all(net, it)


def _push_all(net: Network, it: Connection) -> int:
    _push(net, it, False)
    if it.tells_idle and not it.waiting and not it.left_bytes and not it.unsent_bytes:
        return IS_IDLE
    return DONE


def _end(net: Network, it: Connection, status: int) -> int:
    """Set the sender's timer if ``wakes_afterwards``, once nothing more is written. Return ``status``."""
    if it.wakes_afterwards and status != NEEDS_MESSAGE:
        it.wakes_afterwards = False
        wake_sender(net, it)
    return status


def _push(net: Network, it: Connection, more: bool) -> None:
    if it.is_lan:
        push_frames(net, it, more)
    else:
        push_segments(net, it, more)
