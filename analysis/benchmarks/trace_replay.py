"""How closely emulated links follow a bandwidth trace with a step every 100 ms, on many links at once.

Each link is flooded a little faster than its trace allows, so that its queue is never empty and never overflows for
long. What arrives, by the kernel's count of bytes at the far interface, is compared with the trace, second by second.
Within the contract: correlation of each link at least 0.98, mean error at most 3 %, and the 99th percentile of
the changes' lateness at most 20 ms.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.benchmarks.harness import ROOT, Row
from analysis.benchmarks.sample_plans import pairs_of_sites, with_link
from emulation.flood import EXCESS, PAYLOAD_BYTES
from emulation.namespaces import inside, socket_in
from emulation.network import Emulation, no_record
from emulation.probe import probe
from testbed.plan.model import Plan, Series
from testbed.plan.shaping import FRAME_BYTES
from testbed.results.events import read
from topologies.traces import read_trace
from topologies.traces.change import resampled, scaled

TRACE = ROOT / "topologies" / "data" / "traces" / "lte-drive.csv"
STEP_S = 0.1
MEAN_BPS = 6e6  # twelve such links are within the ceiling of two cores
LEAST_CORRELATION, MOST_ERROR, MOST_LATE_S = 0.98, 0.03, 0.02
_TICK_S, _WINDOW_S = 0.002, 1.0
_BEHIND_S = 0.05  # a sender that was late catches up with at most this much of the trace
_PORT = 19_800


def series_of(path: Path) -> Series:
    """Return the trace at steps of ``STEP_S`` seconds, repeated, scaled to a mean rate of ``MEAN_BPS``."""
    trace = resampled(read_trace(path), STEP_S)
    mean = sum(trace.values) / len(trace.values)
    values = scaled(trace, MEAN_BPS / mean).values
    times_s = tuple(round(number * STEP_S, 6) for number in range(len(values)))
    return Series(times_s=times_s, values=values, period_s=len(values) * STEP_S, source=path.name)


def rotated(series: Series, steps: int) -> Series:
    steps %= len(series.values)
    return replace(series, values=series.values[steps:] + series.values[:steps])


def traced_star(series: Series, links: int) -> Plan:
    """Return pairs of sites whose links follow the series, each from another position in it."""
    made = pairs_of_sites(links, rate_bps=MEAN_BPS, queue_bytes=60_000)
    for number in range(links):
        part = rotated(series, number * len(series.values) // links)
        made = with_link(made, f"dc{2 * number}>dc{2 * number + 1}", rate_trace=part)
    return made


def measure(options: argparse.Namespace) -> Iterator[Row]:
    with Emulation(traced_star(series_of(options.trace), options.links), probe(), no_record) as network:
        network.helpers.start_monitor(time.monotonic())
        with network.measuring():
            links = flood_traced_links(network, options.seconds)
        network.helpers.finish()
        late_s = [event["late_s"] for event in read(network.events) if event["kind"] == "replay"]
    if options.windows:
        columns = ["link", "second", "planned_bits", "delivered_bits"]
        rows = [(link.name, second, *window) for link in links for second, window in enumerate(link.windows(), 1)]
        pd.DataFrame(rows, columns=columns).to_csv(options.windows, index=False)
    worst = min(score(link.windows())[0] for link in links)
    correlation, error = score([window for link in links for window in link.windows()])
    p99_s = float(np.quantile(late_s, 0.99))
    yield {
        "trace": options.trace.name, "seconds": options.seconds, "links": len(links), "changes": len(late_s),
        "correlation": round(correlation, 5), "worst_correlation": round(worst, 5), "error": round(error, 5),
        "late_p50_s": float(np.median(late_s)), "late_p99_s": p99_s, "late_max_s": max(late_s),
        "load": os.getloadavg()[1],
        "ok": bool(worst >= LEAST_CORRELATION and error <= MOST_ERROR and p99_s <= MOST_LATE_S),
    }  # fmt: skip


class Integral:
    """Bits that a rate series in bit/s allows from time 0 on: its integral, which is piecewise linear."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._lap_s = series.period_s if math.isfinite(series.period_s) else math.inf
        spans_s = np.diff([*series.times_s, self._lap_s if math.isfinite(self._lap_s) else series.times_s[-1]])
        self._sums = np.concatenate([[0.0], np.cumsum(spans_s * np.array(series.values))])

    def until(self, at_s: float) -> float:
        laps, rest_s = divmod(at_s, self._lap_s) if math.isfinite(self._lap_s) else (0.0, at_s)
        index = max(0, int(np.searchsorted(self._series.times_s, rest_s, side="right")) - 1)
        part = (rest_s - self._series.times_s[index]) * self._series.values[index]
        return float(laps * self._sums[-1] + self._sums[index] + part)


@dataclass(slots=True)
class FloodedLink:
    """One link. ``samples``: (seconds since the start, bits received by then)."""

    name: str
    allowed: Integral
    sender: socket.socket
    namespace: str
    interface: str
    delay_s: float
    sent_bits: float = 0.0
    samples: list[tuple[float, float]] = field(default_factory=list)

    def windows(self) -> list[tuple[float, float]]:
        """(planned, delivered) bits of each second. The first is left out: the queue fills in it."""
        found = []
        for (begin_s, before), (end_s, after) in zip(self.samples[1:], self.samples[2:], strict=False):
            planned = self.allowed.until(end_s - self.delay_s) - self.allowed.until(begin_s - self.delay_s)
            found.append((planned, after - before))
        return found


def score(windows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return Pearson's correlation of planned and delivered bits, and mean |delivered - planned| over mean planned.

    A constant series has correlation 1 by definition here.
    """
    planned, delivered = np.array(windows).T
    constant = planned.std() * delivered.std() == 0
    correlation = 1.0 if constant else float(np.corrcoef(planned, delivered)[0, 1])
    return correlation, float(np.abs(delivered - planned).mean() / planned.mean())


def flood_traced_links(network: Emulation, seconds: float) -> list[FloodedLink]:
    """Flood every WAN link that has a rate trace, from a node of its source to its far end, and start the replay."""
    begin_s = time.monotonic() + 0.1
    with ExitStack() as sockets:
        links = []
        for each in network.layout.wan:
            if each.plan.rate_trace is None:
                continue
            source = next(name for name in network.layout.hosts if name.startswith(f"{each.plan.source}/"))
            target, interface = network.namespace_path(each.ingress.vertex), each.ingress.interface
            # without a listener each packet would be answered by an ICMP error
            listener = sockets.enter_context(socket_in(target, socket.SOCK_DGRAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # what arrives is counted, not read
            listener.bind((each.ingress.ip, _PORT))
            sender = sockets.enter_context(socket_in(network.namespace_path(source), socket.SOCK_DGRAM))
            sender.connect((each.ingress.ip, _PORT))
            allowed = Integral(each.plan.rate_trace)
            links.append(FloodedLink(each.plan.name, allowed, sender, target, interface, each.plan.delay_s))
        network.helpers.begin(begin_s, begin_s)
        _run(links, begin_s, seconds)
    return links


def _run(links: Sequence[FloodedLink], begin_s: float, seconds: float) -> None:
    next_sample_s = 0.0
    while (now_s := time.monotonic() - begin_s) < seconds + _TICK_S:
        for link in links if now_s > 0 else ():
            _send(link, now_s)
        if now_s >= next_sample_s:
            for link in links:
                link.samples.append((time.monotonic() - begin_s, _received_bits(link)))
            next_sample_s += _WINDOW_S
        time.sleep(max(0.0, begin_s + now_s + _TICK_S - time.monotonic()))


def _send(link: FloodedLink, now_s: float) -> None:
    due_bits = EXCESS * link.allowed.until(now_s)
    link.sent_bits = max(link.sent_bits, EXCESS * link.allowed.until(max(0.0, now_s - _BEHIND_S)))
    with suppress(BlockingIOError, ConnectionRefusedError):
        while link.sent_bits < due_bits:
            link.sender.send(bytes(PAYLOAD_BYTES))
            link.sent_bits += FRAME_BYTES * 8


def _received_bits(link: FloodedLink) -> float:
    with inside(link.namespace):
        table = Path("/proc/thread-self/net/dev").read_text()
    for line in table.splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == link.interface:
            return float(counters.split()[0]) * 8
    raise LookupError(link.interface)


EMULATED = True
ARGUMENTS = {
    "--trace": {"type": Path, "default": TRACE},
    "--seconds": {"type": float, "default": 600.0},
    "--links": {"type": int, "default": 12},
    "--windows": {"type": Path, "metavar": "FILE", "help": "write planned and delivered bits per link and second"},
}
