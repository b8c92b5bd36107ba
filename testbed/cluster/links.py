"""Measures the real network between two machines: round-trip time, rate and losses of one TCP connection.

One agent serves, in a separate process, and the other measures. The measuring agent sends the token that the driver has
given to both, then single bytes that the server echoes, then as many bytes as it can in ``SECONDS``, at most
``MOST_BYTES``.
"""

from __future__ import annotations

import signal
import socket
import statistics
import struct
import time
from typing import Any

from testbed.processes.child import Child, fork
from testbed.realtime.sockets import TcpInfo

SECONDS = 0.5
MOST_BYTES = 4 << 20
ROUND_TRIPS = 10
TOKEN_BYTES = 16
_LIMIT_S = 20.0
_PIECE_BYTES = 1 << 16
_COUNT = struct.Struct("!Q")
_IP_MTU = 14  # linux/in.h: MTU of the path, as far as the kernel knows


def serve(bind: str, token: bytes) -> tuple[int, Child]:
    """Start a process that serves one measurement, for at most ``_LIMIT_S``. Return its port and the process."""
    with socket.create_server((bind, 0)) as listener:
        return listener.getsockname()[1], fork(lambda _: _serve(listener, token))


def _serve(listener: socket.socket, token: bytes) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(_LIMIT_S))
    while True:
        sock, _ = listener.accept()
        sock.settimeout(_LIMIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _exactly(sock, TOKEN_BYTES) == token:
            break
        sock.close()
    for _ in range(ROUND_TRIPS):
        sock.sendall(_exactly(sock, 1))
    count = 0
    while data := sock.recv(_PIECE_BYTES):
        count += len(data)
    sock.sendall(_COUNT.pack(count))
    return 0


def measure(to: tuple[str, int], source: str, token: bytes) -> dict[str, Any]:
    """Return round-trip times (s), rate (bit/s), share of packets sent again and path MTU (bytes), or the failure."""
    try:
        with socket.create_connection(to, timeout=_LIMIT_S, source_address=(source, 0)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(token)
            times_s = [_round_trip_s(sock) for _ in range(ROUND_TRIPS)]
            begin_s = time.monotonic()
            data = bytes(_PIECE_BYTES)
            sent = 0
            while sent < MOST_BYTES and time.monotonic() - begin_s < SECONDS:
                sent += sock.send(data)
            sock.shutdown(socket.SHUT_WR)
            (count,) = _COUNT.unpack(_exactly(sock, _COUNT.size))
            took_s = time.monotonic() - begin_s
            info = TcpInfo.of(sock)
            mtu_bytes = sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
    except OSError as error:
        return {"failed": str(error)}
    return {
        "rtt_s": statistics.median(times_s),
        "min_rtt_s": min(times_s),
        "rate_bps": 8 * count / took_s,
        "loss": info.loss,
        "packets": info.packets,
        "mtu_bytes": mtu_bytes,
    }


def _round_trip_s(sock: socket.socket) -> float:
    begin_s = time.monotonic()
    sock.sendall(b"\0")
    _exactly(sock, 1)
    return time.monotonic() - begin_s


def _exactly(sock: socket.socket, size: int) -> bytes:
    """Return the next ``size`` bytes of a socket. Raise ``ConnectionError`` if the connection ends before that."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other end has closed the connection")
        data += piece
    return data
