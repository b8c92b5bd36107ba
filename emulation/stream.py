"""A counted stream of small datagrams, for measuring loss: how many of so many arrive."""

from __future__ import annotations

import socket
import time

from emulation.namespaces import inside

_PORT, _PAYLOAD_BYTES = 19_799, 64
_PER_BURST, _BURST_GAP_S = 10, 0.001
_SILENCE_S = 1.0
_SO_RCVBUFFORCE = 33


def count_datagrams(source_namespace: str, target_namespace: str, target: str, packets: int) -> int:
    """Send ``packets`` datagrams, about ten a millisecond, and count those that arrive (until a second of silence)."""
    with inside(target_namespace):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(source_namespace):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver:
        try:
            receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        except PermissionError:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        receiver.bind((target, _PORT))
        receiver.setblocking(False)
        sender.connect((target, _PORT))
        sent = received = 0
        begin = last = time.monotonic()
        while sent < packets or time.monotonic() < last + _SILENCE_S:
            due = min(packets, int((time.monotonic() - begin) / _BURST_GAP_S + 1) * _PER_BURST, sent + 10 * _PER_BURST)
            while sent < due:
                sender.send(bytes(_PAYLOAD_BYTES))
                sent += 1
            arrived = _drain(receiver)
            received += arrived
            if arrived or sent < packets:
                last = time.monotonic()
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
