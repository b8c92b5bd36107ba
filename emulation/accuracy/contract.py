"""The accuracy contract of emulated links, measured on this machine and printed: rate, round trip and loss.

Rate: TCP goodput against rate x 1448/1514 (tc counts Ethernet frames). Round trip: ICMP echo, median and 99th
percentile. Loss: UDP packets, with the account that sent = received + dropped. Each setting is a network of its own,
as a run would make it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from emulation.bulk import GOODPUT_SHARE, BulkTransfer, transfer
from emulation.children import MEASURE_PRIORITY, realtime
from emulation.network import Emulation, no_record
from emulation.ping import Pair, ping
from emulation.probe import Capabilities, probe
from emulation.sample_plans import plan
from emulation.stream import count_datagrams
from testbed.plan.model import Plan, TransportPlan

RATES_MBPS = (1.0, 5.0, 20.0, 100.0, 300.0)
RTTS_MS = (2.0, 20.0, 100.0, 300.0)
LOSSES = (0.01, 0.05)
RATE_ERROR, LOSS_ERROR = 0.02, 0.10
LAST_TOTAL_BPS = 400e6  # of all links together; what two cores carry is found by the part ``ceiling``


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """One line of the table. ``error`` is relative for rates and losses, in milliseconds for round trips."""

    what: str
    setting: str
    planned: float
    measured: float
    error: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        return abs(self.error) <= self.tolerance

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "OUTSIDE"
        unit = "ms" if self.what.startswith("rtt") else "%"
        error, limit = (self.error, self.tolerance) if unit == "ms" else (self.error * 100, self.tolerance * 100)
        return (
            f"{self.what:10} {self.setting:34} {self.planned:10.3f} {self.measured:10.3f} "
            f"{error:+8.2f} {unit:2} (± {limit:.2f})  {verdict:8}{self.note}"
        )


def star(count: int, transport: TransportPlan | None = None, **link: Any) -> Plan:
    """``count`` pairs of sites, each pair with a link of its own."""
    pairs = {(f"dc{2 * number}", f"dc{2 * number + 1}"): link for number in range(count)}
    routes: dict[str, tuple[str, ...]] = {f"{a}>{b}": (f"{a}>{b}",) for pair in pairs for a, b in (pair, pair[::-1])}
    return plan(pairs, sites=2 * count, routes=routes, transport=transport or TransportPlan())


def rate_rows(found: Capabilities, rate_bps: float, control: str, links: int, seconds: float) -> Iterator[AccuracyRow]:
    """Goodput of one TCP flow a link, 20 ms round trip, a queue of one bandwidth-delay product and 20 ms more."""
    queue = max(65_536, int(rate_bps * 0.04 / 8))
    settings = star(
        links, TransportPlan(congestion_control=control), rate_bps=rate_bps, delay_s=0.01, queue_bytes=queue
    )
    with Emulation(settings, found, no_record) as net:
        transfers = [_transfer(net, f"dc{2 * number}", f"dc{2 * number + 1}") for number in range(links)]
        with realtime(MEASURE_PRIORITY if found.realtime else None):  # it is the links that are measured
            transfer(transfers, seconds)
        planned = rate_bps * GOODPUT_SHARE
        values = [each.goodput_bps(seconds / 3) for each in transfers]
        worst = max(values, key=lambda value: abs(value - planned))
        dropped = sum(each.dropped_packets for each in net.counters().values())
    setting = f"{rate_bps / 1e6:g} Mbit/s {control}" + (f", worst of {links} links" if links > 1 else "")
    yield AccuracyRow(
        "rate", setting, planned / 1e6, worst / 1e6, worst / planned - 1, RATE_ERROR, f"{dropped} dropped"
    )


def rtt_rows(found: Capabilities, rtt_s: float, links: int, count: int = 400) -> Iterator[AccuracyRow]:
    """Median and 99th percentile of echoes, every 5 ms on each link, on idle 100 Mbit/s links."""
    settings = star(links, rate_bps=100e6, delay_s=rtt_s / 2, queue_bytes=500_000)
    with Emulation(settings, found, no_record) as net:
        pairs = [
            Pair(link.plan.name, net.namespace_path(link.egress.vertex), link.ingress.ip)
            for link in net.layout.wan
            if link.plan.source < link.plan.target
        ]
        with realtime(MEASURE_PRIORITY if found.realtime else None):
            ping(pairs, count, 0.005, rtt_s * 1.5 + 0.1)
    values = sorted(value for pair in pairs for value in pair.rtts_s)
    missing = count * links - len(values)
    for what, share, slack_ms in (("rtt p50", 0.5, 1.0), ("rtt p99", 0.99, 3.0)):
        got = values[min(len(values) - 1, int(len(values) * share))]
        tolerance = slack_ms + 0.02 * rtt_s * 1e3
        setting = f"{rtt_s * 1e3:g} ms" + (f", {links} links" if links > 1 else "")
        note = f"max {values[-1] * 1e3:.1f} ms, {missing} unanswered"
        yield AccuracyRow(what, setting, rtt_s * 1e3, got * 1e3, (got - rtt_s) * 1e3, tolerance, note)


def loss_rows(found: Capabilities, loss: float, packets: int) -> Iterator[AccuracyRow]:
    """Share of small datagrams lost on a fast link, and whether every one is accounted for."""
    settings = star(1, rate_bps=200e6, delay_s=0.005, queue_bytes=2_000_000, loss=loss)
    with Emulation(settings, found, no_record) as net:
        before = net.counters()["dc0>dc1"]
        received = count_datagrams(
            net.namespace_path("dc0/worker0"), net.namespace_path("dc1/worker0"), net.address("dc1/worker0"), packets
        )
        after = net.counters()["dc0>dc1"]
    lost, dropped = after.lost_packets - before.lost_packets, after.dropped_packets - before.dropped_packets
    share = 1 - received / packets
    account = f"{packets} sent = {received} received + {lost} lost + {dropped} dropped in the queue"
    if received + lost + dropped != packets:
        account = "NOT ACCOUNTED FOR: " + account
    yield AccuracyRow("loss", f"{loss:.2%} of {packets}", loss, share, share / loss - 1, LOSS_ERROR, account)


def _transfer(net: Emulation, source: str, target: str) -> BulkTransfer:
    a, b = f"{source}/worker0", f"{target}/worker0"
    return BulkTransfer(f"{source}>{target}", net.namespace_path(a), net.namespace_path(b), net.address(b))


def contract(options: argparse.Namespace) -> Iterator[AccuracyRow]:
    """All rows, as they are measured."""
    found = probe()
    for links in options.links:
        for control in options.congestion_control:
            for rate in options.rates:
                if links * rate * 1e6 > LAST_TOTAL_BPS:
                    continue
                yield from rate_rows(found, rate * 1e6, control, links, max(options.seconds, 20 / rate))
        for rtt in options.rtts:
            yield from rtt_rows(found, rtt / 1e3, links)
    for loss in options.losses:
        yield from loss_rows(found, loss, options.packets)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", type=_numbers, default=RATES_MBPS, metavar="MBPS,…")
    parser.add_argument("--rtts", type=_numbers, default=RTTS_MS, metavar="MS,…")
    parser.add_argument("--losses", type=_numbers, default=LOSSES, metavar="SHARE,…")
    parser.add_argument("--packets", type=int, default=100_000, help="datagrams for each loss")
    parser.add_argument("--links", type=lambda text: tuple(int(number) for number in text.split(",")), default=(1, 12))
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each transfer")
    parser.add_argument("--congestion-control", type=lambda text: tuple(text.split(",")), default=("cubic", "bbr"))
    parser.add_argument("--json", action="store_true", help="one JSON object a row")


def run(options: argparse.Namespace) -> int:
    """Print each row as it is measured; exit status 1 if anything is outside its tolerance."""
    rows = []
    for row in contract(options):
        rows.append(row)
        print(json.dumps(asdict(row)) if options.json else row, flush=True)  # noqa: T201 - a command
    return 0 if all(row.ok for row in rows) else 1


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(",") if number)
