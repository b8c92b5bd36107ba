"""What the tests of best-effort channels do inside the sandbox."""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from typing import Any

from analysis.benchmarks.sample_plans import plan
from emulation.network import Emulation
from emulation.probe import probe
from testbed.best_effort import type_of_service
from testbed.plan.model import TransportPlan
from tests.emulation.cases import socket_on

CHANNELS = 3
PORT = 7000
SIZE = 1000


def _network(**link: Any) -> Emulation:
    settings = plan({("dc0", "dc1"): link}, transport=TransportPlan(best_effort_channels=CHANNELS))
    return Emulation(settings, probe(), lambda kind, **fields: None)


def _socket(net: Emulation, channel: int) -> socket.socket:
    sock = socket_on(net, "dc0/worker0", socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, type_of_service(channel, CHANNELS))
    sock.connect((net.address("dc1/worker0"), PORT))
    return sock


def served_by_priority() -> dict[str, Any]:
    """All channels together send three times what the link takes, for a second. What of each arrives?"""
    with _network(rate_bps=10e6, delay_s=0.005, queue_bytes=30_000) as net:
        receiver = socket_on(net, "dc1/worker0", socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        receiver.bind((net.address("dc1/worker0"), PORT))
        receiver.setblocking(False)
        sockets = [_socket(net, channel) for channel in range(CHANNELS + 1)]
        sent = [0] * (CHANNELS + 1)
        began_s = time.monotonic()
        while (now_s := time.monotonic() - began_s) < 1.0:
            # channel 0 and 1: 4 Mbit/s each; channel 2: 8 Mbit/s, of which a quarter finds room; channel 3: none
            for channel, rate_bps in enumerate((4e6, 4e6, 8e6, 8e6)):
                while sent[channel] * (SIZE + 42) * 8 < rate_bps * now_s:
                    sockets[channel].send(struct.pack("!B", channel) + bytes(SIZE - 1))
                    sent[channel] += 1
            time.sleep(0.001)
        time.sleep(0.3)
        arrived = [0] * (CHANNELS + 1)
        try:
            while True:
                arrived[receiver.recv(2048)[0]] += 1
        except BlockingIOError:
            pass
        dropped = net.counters()["dc0>dc1"].dropped_packets
        for sock in (receiver, *sockets):
            sock.close()
        return {"sent": sent, "arrived": arrived, "dropped": dropped}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))  # noqa: T201 - read by finish()
