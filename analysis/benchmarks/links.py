"""Accuracy of emulated links on this machine: rate, round-trip time and loss against the plan.

Each setting is measured on a network of its own, made as a run would make it.

rate     TCP goodput of one flow per link against rate x 1448/1514: tc counts Ethernet frames of 1514 bytes, of which
         1448 are payload. Tolerance 2 %.
rtt      ICMP echoes on idle links: median within 1 ms + 2 %, 99th percentile within 3 ms + 2 %.
loss     share of UDP packets lost, within 10 % of the planned share; sent = received + lost + dropped must hold.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Iterator

from analysis.benchmarks.harness import Row, listed
from analysis.benchmarks.sample_plans import pairs_of_sites
from emulation.bulk import GOODPUT_SHARE, BulkTransfer, transfer
from emulation.namespaces import enlarge_buffers, socket_in
from emulation.network import Emulation, no_record
from emulation.ping import Pair, ping
from emulation.probe import Capabilities, probe
from testbed.settings.run import Transport

RATES_MBPS = (1.0, 5.0, 20.0, 100.0, 300.0)
RTTS_MS = (2.0, 20.0, 100.0, 300.0)
LOSSES = (0.01, 0.05)
RATE_ERROR = 0.02
LOSS_ERROR = 0.10
LAST_TOTAL_BPS = 400e6  # highest total rate of all links: the machine's cores may not carry more

_PORT = 19_799
_PAYLOAD_BYTES = 64
_PER_BURST = 10
_BURST_GAP_S = 0.001
_SILENCE_S = 1.0  # time without arrivals after which no more datagrams are expected


def row(what: str, setting: str, planned: float, measured: float, error: float, tolerance: float, note: str) -> Row:
    """Return a row. ``error`` and ``tolerance`` are relative for rates and losses, in ms for round-trip times."""
    return {
        "what": what,
        "setting": setting,
        "planned": planned,
        "measured": measured,
        "error": error,
        "tolerance": tolerance,
        "ok": abs(error) <= tolerance,
        "note": note,
    }


def rate_row(found: Capabilities, rate_bps: float, control: str, links: int, seconds: float) -> Row:
    """Return the row of the link whose goodput (Mbit/s) is farthest from the plan, of ``links`` used at once.

    The round-trip time is 20 ms; the queue holds one bandwidth-delay product and 20 ms more. The first third of each
    transfer (slow start, the burst of an idle HTB class) does not count.
    """
    queue = max(65_536, int(rate_bps * 0.04 / 8))
    settings = pairs_of_sites(
        links, Transport(congestion_control=control), rate_bps=rate_bps, delay_s=0.01, queue_bytes=queue
    )
    with Emulation(settings, found, no_record) as net:
        transfers = [BulkTransfer.between(net, f"dc{2 * n}/worker0", f"dc{2 * n + 1}/worker0") for n in range(links)]
        with net.measuring():
            transfer(transfers, seconds)
        dropped = sum(each.dropped_packets for each in net.counters().values())
    planned = rate_bps * GOODPUT_SHARE
    worst = max((each.goodput_bps(seconds / 3) for each in transfers), key=lambda value: abs(value - planned))
    setting = f"{rate_bps / 1e6:g} Mbit/s {control}" + (f", worst of {links} links" if links > 1 else "")
    return row("rate", setting, planned / 1e6, worst / 1e6, worst / planned - 1, RATE_ERROR, f"{dropped} dropped")


def rtt_rows(found: Capabilities, rtt_s: float, links: int, count: int = 400) -> Iterator[Row]:
    """Yield rows for the median and 99th percentile (ms) of echoes on idle links of 100 Mbit/s, one every 5 ms."""
    with Emulation(
        pairs_of_sites(links, rate_bps=100e6, delay_s=rtt_s / 2, queue_bytes=500_000), found, no_record
    ) as net:
        pairs = [
            Pair(link.plan.name, net.namespace_path(link.egress.vertex), link.ingress.ip)
            for link in net.layout.wan
            if link.plan.source < link.plan.target
        ]
        with net.measuring():
            ping(pairs, count, 0.005, rtt_s * 1.5 + 0.1)
    values = sorted(value for pair in pairs for value in pair.rtts_s)
    missing = count * links - len(values)
    for what, share, slack_ms in (("rtt p50", 0.5, 1.0), ("rtt p99", 0.99, 3.0)):
        got = values[min(len(values) - 1, int(len(values) * share))]
        setting = f"{rtt_s * 1e3:g} ms" + (f", {links} links" if links > 1 else "")
        note = f"max {values[-1] * 1e3:.1f} ms, {missing} unanswered"
        yield row(what, setting, rtt_s * 1e3, got * 1e3, (got - rtt_s) * 1e3, slack_ms + 0.02 * rtt_s * 1e3, note)


def loss_row(found: Capabilities, loss: float, packets: int) -> Row:
    """Return the row for the share of small datagrams lost on a fast link; it is ok only if all are accounted for."""
    settings = pairs_of_sites(1, rate_bps=200e6, delay_s=0.005, queue_bytes=2_000_000, loss=loss)
    with Emulation(settings, found, no_record) as net:
        before = net.counters()["dc0>dc1"]
        received = count_datagrams(net, "dc0/worker0", "dc1/worker0", packets)
        after = net.counters()["dc0>dc1"]
    lost = after.lost_packets - before.lost_packets
    dropped = after.dropped_packets - before.dropped_packets
    share = 1 - received / packets
    account = f"{packets} sent = {received} received + {lost} lost + {dropped} dropped in the queue"
    whole = received + lost + dropped == packets
    account = account if whole else f"NOT ACCOUNTED FOR: {account}"
    judged = row("loss", f"{loss:.2%} of {packets}", loss, share, share / loss - 1, LOSS_ERROR, account)
    return judged | {"ok": judged["ok"] and whole}


def count_datagrams(network: Emulation, source: str, target: str, packets: int) -> int:
    """Send ``packets`` datagrams from one node to another, about ten per millisecond.

    Return how many have arrived when nothing has arrived for one second.
    """
    receiver = socket_in(network.namespace_path(target), socket.SOCK_DGRAM)
    sender = socket_in(network.namespace_path(source), socket.SOCK_DGRAM)
    with sender, receiver:
        enlarge_buffers(receiver, 1 << 26)
        receiver.bind((network.address(target), _PORT))
        sender.connect((network.address(target), _PORT))
        sender.setblocking(True)
        sent = received = 0
        begin_s = last_s = time.monotonic()
        while sent < packets or time.monotonic() < last_s + _SILENCE_S:
            due = int((time.monotonic() - begin_s) / _BURST_GAP_S + 1) * _PER_BURST
            due = min(packets, due, sent + 10 * _PER_BURST)  # avoids a burst after a pause, which would fill the queue
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


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for every setting, except for those that would exceed ``LAST_TOTAL_BPS``."""
    found = probe()
    for links in options.links:
        for control in options.congestion_control:
            for rate in options.rates:
                if links * rate * 1e6 <= LAST_TOTAL_BPS:
                    yield rate_row(found, rate * 1e6, control, links, max(options.seconds, 20 / rate))
        for rtt in options.rtts:
            yield from rtt_rows(found, rtt / 1e3, links)
    for loss in options.losses:
        yield loss_row(found, loss, options.packets)


EMULATED = True
ARGUMENTS = {
    "--rates": {"type": listed(float), "default": RATES_MBPS, "metavar": "MBPS,…"},
    "--rtts": {"type": listed(float), "default": RTTS_MS, "metavar": "MS,…"},
    "--losses": {"type": listed(float), "default": LOSSES, "metavar": "SHARE,…"},
    "--packets": {"type": int, "default": 100_000, "help": "datagrams for each loss"},
    "--links": {"type": listed(int), "default": (1, 12), "metavar": "N,…", "help": "links used at once"},
    "--seconds": {"type": float, "default": 6.0, "help": "length of each transfer"},
    "--congestion-control": {"type": listed(str), "default": ("cubic", "bbr"), "metavar": "NAME,…"},
}
