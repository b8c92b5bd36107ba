"""Counts how many of a stream of small datagrams arrive: the measurement of loss."""

from __future__ import annotations

import socket
import time

from emulation.namespaces import enlarge_receive_buffer, socket_in
from emulation.network import Emulation

_PORT, _PAYLOAD_BYTES = 19_799, 64
_PER_BURST, _BURST_GAP_S = 10, 0.001
_SILENCE_S = 1.0


def count_datagrams(network: Emulation, source: str, target: str, packets: int) -> int:
    """Send ``packets`` datagrams from a node to a node, about ten per millisecond.

    Returns how many have arrived when one second has passed in silence.
    """
    receiver = socket_in(network.namespace_path(target), socket.SOCK_DGRAM)
    sender = socket_in(network.namespace_path(source), socket.SOCK_DGRAM)
    with sender, receiver:
        enlarge_receive_buffer(receiver, 1 << 26)
        receiver.bind((network.address(target), _PORT))
        sender.connect((network.address(target), _PORT))
        sender.setblocking(True)
        sent = received = 0
        begin_s = last_s = time.monotonic()
        while sent < packets or time.monotonic() < last_s + _SILENCE_S:
            due = int((time.monotonic() - begin_s) / _BURST_GAP_S + 1) * _PER_BURST
            due = min(packets, due, sent + 10 * _PER_BURST)  # after a pause no burst that would fill the queue
            while sent < due:
                sender.send(bytes(_PAYLOAD_BYTES))
                sent += 1
            arrived = _drain(receiver)
            received += arrived
            if arrived or sent < packets:
                last_s = time.monotonic()
            time.sleep(_BURST_GAP_S / 2)
        return received


def _drain(receiver: socket.socket) -> int:
    count = 0
    while True:
        try:
            receiver.recv(_PAYLOAD_BYTES)
        except BlockingIOError:
            return count
        count += 1
