"""How well links follow their traces: a node floods each link a little faster than its trace says, and what arrives at
the other end, second by second, is compared with the trace. Delivered bytes are the kernel's counts at the receiver.
"""

from __future__ import annotations

import math
import socket
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from emulation.namespaces import inside
from emulation.network import Emulation
from testbed.plan.model import Series

FRAME_BYTES, _PAYLOAD = 1514, bytes(1472)
_EXCESS = 1.1  # so that the link's queue is never empty
_TICK_S, _WINDOW_S = 0.002, 1.0
_BEHIND_S = 0.05
_PORT = 19_800


class Integral:
    """Bits that a rate series allows until a time."""

    def __init__(self, series: Series) -> None:
        self._series, self._sums = series, [0.0]
        for index in range(len(series.times_s) - 1):
            span_s = series.times_s[index + 1] - series.times_s[index]
            self._sums.append(self._sums[-1] + span_s * series.values[index])
        last_s = series.period_s - series.times_s[-1] if math.isfinite(series.period_s) else 0.0
        self._lap = self._sums[-1] + last_s * series.values[-1]

    def until(self, at_s: float) -> float:
        """From time 0 on."""
        laps, rest_s = divmod(at_s, self._series.period_s) if math.isfinite(self._series.period_s) else (0.0, at_s)
        index = max(0, bisect_right(self._series.times_s, rest_s) - 1)
        inside_bits = (rest_s - self._series.times_s[index]) * self._series.values[index]
        return laps * self._lap + self._sums[index] + inside_bits


@dataclass(slots=True)
class Followed:
    """One link: per window of a second, bits that arrived and bits that the trace allowed."""

    link: str
    integral: Integral
    sender: socket.socket
    namespace: str
    interface: str
    shift_s: float
    sent_bits: float = 0.0
    samples: list[tuple[float, float]] = field(default_factory=list)  # (time since the start, bits received)

    def windows(self) -> list[tuple[float, float]]:
        """(planned, delivered) bits of each window; the first is left out, the queue fills in it."""
        found = []
        for (begin_s, before), (end_s, after) in zip(self.samples[1:], self.samples[2:], strict=False):
            planned = self.integral.until(end_s - self.shift_s) - self.integral.until(begin_s - self.shift_s)
            found.append((planned, after - before))
        return found


@dataclass(frozen=True, slots=True)
class TrackingScore:
    """Over all windows of some links. ``error``: mean of |delivered - planned| over the mean planned."""

    correlation: float
    error: float
    windows: int


def score(pairs: Sequence[tuple[float, float]]) -> TrackingScore:
    """Pearson's correlation and mean error of (planned, delivered)."""
    count = len(pairs)
    mean_p, mean_d = sum(p for p, _ in pairs) / count, sum(d for _, d in pairs) / count
    covariance = sum((p - mean_p) * (d - mean_d) for p, d in pairs)
    spread = math.sqrt(sum((p - mean_p) ** 2 for p, _ in pairs) * sum((d - mean_d) ** 2 for _, d in pairs))
    error = sum(abs(d - p) for p, d in pairs) / count / mean_p
    return TrackingScore(covariance / spread if spread else 1.0, error, count)


def follow(network: Emulation, seconds: float) -> list[Followed]:
    """Flood every WAN link that has a rate trace from its source to its target's gateway. The replay starts here."""
    flows = [_flow(network, number) for number in range(len(network.layout.wan))]
    begin_s = time.monotonic() + 0.1
    network.start_replay(begin_s, begin_s)
    active = [flow for flow in flows if flow is not None]
    try:
        _run(active, begin_s, seconds)
    finally:
        for flow in active:
            flow.sender.close()
    return active


def _flow(network: Emulation, number: int) -> Followed | None:
    link = network.layout.wan[number]
    if link.plan.rate_trace is None:
        return None
    source = next(name for name in network.layout.hosts if name.startswith(f"{link.plan.source}/"))
    sender = network.socket_on(source, socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    sender.connect((link.ingress.ip, _PORT))
    target = network.namespace_path(link.ingress.vertex)
    integral = Integral(link.plan.rate_trace)
    return Followed(link.plan.name, integral, sender, target, link.ingress.interface, link.plan.delay_s)


def _run(flows: Sequence[Followed], begin_s: float, seconds: float) -> None:
    listeners = [_listener(flow) for flow in flows]  # without one, each packet would be answered by an error
    next_sample_s = 0.0
    try:
        while (now_s := time.monotonic() - begin_s) < seconds + _TICK_S:
            for flow in flows if now_s > 0 else ():
                _send(flow, now_s)
            if now_s >= next_sample_s:
                for flow in flows:
                    flow.samples.append((time.monotonic() - begin_s, _received_bits(flow)))
                next_sample_s += _WINDOW_S
            time.sleep(max(0.0, begin_s + now_s + _TICK_S - time.monotonic()))
    finally:
        for listener in listeners:
            listener.close()


def _listener(flow: Followed) -> socket.socket:
    with inside(flow.namespace):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # what arrives is counted, not read
    listener.bind((flow.sender.getpeername()[0], _PORT))
    return listener


def _send(flow: Followed, now_s: float) -> None:
    due = _EXCESS * flow.integral.until(now_s)
    flow.sent_bits = max(flow.sent_bits, _EXCESS * flow.integral.until(max(0.0, now_s - _BEHIND_S)))
    with suppress(BlockingIOError, ConnectionRefusedError):
        while flow.sent_bits < due:
            flow.sender.send(_PAYLOAD)
            flow.sent_bits += FRAME_BYTES * 8


def _received_bits(flow: Followed) -> float:
    with inside(flow.namespace):
        table = Path("/proc/thread-self/net/dev").read_text()
    for line in table.splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == flow.interface:
            return float(counters.split()[0]) * 8
    raise LookupError(flow.interface)
