"""Background traffic on the emulated WAN, from a process of its own: datagrams at a rate, in bursts, or TCP.

Each data centre with background traffic has a host for it, ``<site>/background``, behind its gateway, so that its TCP
shares the link's queue with training: where links serve channels by priority, it is marked as what is reliable there.
Runs as ``python -m emulation.traffic``: it prepares, waits for the line with the start of training, and sends until
SIGTERM. Bytes sent and received are recorded.
"""

from __future__ import annotations

import json
import math
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulation.bulk import PAYLOAD_BYTES
from emulation.helpers import prepare_child
from emulation.layout import Layout
from emulation.namespaces import socket_in
from testbed.plan.model import Plan
from testbed.plan.shaping import FRAME_BYTES
from testbed.results.events import EventLog
from testbed.settings.run import Background
from testbed.traffic import bursts

FIRST_PORT = 19_900
_TICK_S = 0.002
_SAMPLE_S = 1.0
_CHUNK = bytes(1 << 17)
_BEHIND_S = 0.25  # a late sender may send this many seconds of its rate at once, or two frames; the rest is dropped


@dataclass(frozen=True, slots=True)
class Ends:
    """The places of a flow's sockets. ``type_of_service``: the value in its packets' IP headers."""

    source_namespace: str
    target_namespace: str
    target: str
    port: int
    type_of_service: int = 0

    def socket_in(self, namespace: str, kind: socket.SocketKind) -> socket.socket:
        made = socket_in(namespace, kind)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.type_of_service)
        return made


class DatagramTraffic:
    """Traffic of kind ``constant`` or ``on_off``."""

    def __init__(self, traffic: Background, ends: Ends) -> None:
        self._traffic = traffic
        self._bursts = bursts(traffic)
        self._burst = next(self._bursts, (math.inf, math.inf))
        self._burst_sent = 0.0  # of what the burst under way is due to send
        self.sent_bytes = self.received_bytes = 0
        self._receiver = ends.socket_in(ends.target_namespace, socket.SOCK_DGRAM)
        self._receiver.bind((ends.target, ends.port))
        self._sender = ends.socket_in(ends.source_namespace, socket.SOCK_DGRAM)
        self._sender.connect((ends.target, ends.port))

    def step(self, now_s: float) -> None:
        """Send the bytes due at ``now_s``. If the socket is full, the rest is sent later, or dropped when too old."""
        while now_s >= self._burst[1]:
            due = self._send(now_s, self._burst[1])
            begun = max(0.0, min(due - self._burst_sent, FRAME_BYTES))  # of a frame, which the next burst ends
            self._burst = next(self._bursts, (math.inf, math.inf))
            self._burst_sent = -begun
        if now_s >= self._burst[0]:
            self._send(now_s, now_s)

    def _send(self, now_s: float, until_s: float) -> float:
        """Send what the burst under way is due to send until ``until_s``, unless that is too old; return how much."""
        bytes_per_s = self._traffic.rate_bps / 8
        due = bytes_per_s * (until_s - self._burst[0])
        behind = max(2 * FRAME_BYTES, bytes_per_s * _BEHIND_S)
        self._burst_sent = max(self._burst_sent, bytes_per_s * (now_s - self._burst[0]) - behind)
        with suppress(BlockingIOError, ConnectionRefusedError):
            while self._burst_sent + FRAME_BYTES <= due:
                self._sender.send(_CHUNK[:PAYLOAD_BYTES])
                self._burst_sent += FRAME_BYTES
                self.sent_bytes += FRAME_BYTES
        return due

    def readers(self) -> Sequence[socket.socket]:
        """Return the sockets to poll for reading."""
        return [self._receiver]

    def read(self, link: socket.socket) -> None:
        """Read the datagrams that have arrived at a readable socket."""
        with suppress(BlockingIOError):
            while True:
                link.recv(1)
                self.received_bytes += FRAME_BYTES


class Streams:
    """Traffic of kind ``tcp``: connections that send as fast as TCP lets them."""

    def __init__(self, traffic: Background, ends: Ends) -> None:
        self._traffic = traffic
        self._ends = ends
        self.sent_bytes = self.received_bytes = 0
        self._listener = ends.socket_in(ends.target_namespace, socket.SOCK_STREAM)
        self._listener.bind((ends.target, ends.port))
        self._listener.listen(traffic.streams)
        self._senders: list[socket.socket] = []
        self._accepted: list[socket.socket] = []
        self._buffer = bytearray(1 << 18)

    def step(self, now_s: float) -> None:
        """Connect at the traffic's start, fill the sockets, and close them at its end."""
        if now_s >= self._traffic.stop_s:
            for link in self._senders:
                link.close()
            self._senders.clear()
        elif now_s >= self._traffic.start_s:
            while len(self._senders) < self._traffic.streams:
                self._senders.append(self._ends.socket_in(self._ends.source_namespace, socket.SOCK_STREAM))
                self._senders[-1].connect_ex((self._ends.target, self._ends.port))
        for link in list(self._senders):
            try:
                self.sent_bytes += link.send(_CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # TCP has given up, as on a link that is down for minutes: a new connection is made
                self._senders.remove(link)
                link.close()

    def readers(self) -> Sequence[socket.socket]:
        return [self._listener, *self._accepted]

    def read(self, link: socket.socket) -> None:
        """Accept a connection, or read the bytes that have arrived."""
        if link is self._listener:
            accepted, _ = link.accept()
            accepted.setblocking(False)
            self._accepted.append(accepted)
            return
        try:
            while count := link.recv_into(self._buffer, 0, socket.MSG_TRUNC):
                self.received_bytes += count
        except BlockingIOError:
            return
        except OSError:
            pass  # as at its end
        self._accepted.remove(link)
        link.close()


def flow_settings(plan: Plan, layout: Layout, namespace_path: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the settings of each flow, for ``main``, as JSON-ready dictionaries."""
    found = []
    for number, traffic in enumerate(plan.background):
        source = f"{traffic.source}/background"
        target = f"{traffic.target}/background"
        ends = {
            "source_namespace": namespace_path(source),
            "target_namespace": namespace_path(target),
            "target": layout.hosts[target].ip,
            "port": FIRST_PORT + number,
            "type_of_service": _type_of_service(plan.transport.best_effort_channels),
        }
        values = {name: getattr(traffic, name) for name in traffic.__dataclass_fields__}
        if math.isinf(traffic.stop_s):
            del values["stop_s"]  # JSON has no infinity
        found.append({"traffic": values, "ends": ends})
    return found


def _type_of_service(channels: int) -> int:
    """Return the type of service of reliable traffic if there are ``channels`` best-effort channels."""
    if not channels:
        return 0
    from testbed.best_effort import type_of_service  # imports torch, for which the helper would wait

    return type_of_service(0, channels)


def main() -> None:
    given = json.loads(sys.stdin.readline())
    prepare_child()
    flows: list[DatagramTraffic | Streams] = []
    for each in given["flows"]:
        traffic = Background(**each["traffic"])
        flows.append((Streams if traffic.kind == "tcp" else DatagramTraffic)(traffic, Ends(**each["ends"])))
    log = EventLog(Path(given["events"]), given["writer"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("ready", flush=True)  # noqa: T201 - the parent waits for this word
    start = sys.stdin.readline()
    if start:
        times = json.loads(start)
        try:
            _run(flows, log, times["epoch_s"], times["start_s"])
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _record(flows, log, time.monotonic() - times["epoch_s"])
            log.close()


def _run(flows: Sequence[DatagramTraffic | Streams], log: EventLog, epoch_s: float, start_s: float) -> None:
    sampled_s = 0.0
    while True:
        now_s = time.monotonic()
        for flow in flows:
            flow.step(now_s - start_s)
        readers = {link.fileno(): (flow, link) for flow in flows for link in flow.readers()}
        readable = select.poll()  # unlike select(2), it takes any descriptor
        for descriptor in readers:
            readable.register(descriptor, select.POLLIN)
        for descriptor, _ in readable.poll(_TICK_S * 1e3):
            flow, link = readers[descriptor]
            flow.read(link)
        if now_s - sampled_s > _SAMPLE_S:
            _record(flows, log, now_s - epoch_s)
            log.flush()
            sampled_s = now_s
        time.sleep(max(0.0, now_s + _TICK_S - time.monotonic()))


def _record(flows: Sequence[DatagramTraffic | Streams], log: EventLog, at_s: float) -> None:
    for number, flow in enumerate(flows):
        counts = {"sent_bytes": flow.sent_bytes, "received_bytes": flow.received_bytes}
        log.write("background", at_s, number=number, **counts)


if __name__ == "__main__":
    main()
