"""Throughput of parallel TCP streams, with capped and with free receive buffers.

A TCP connection carries at most its window per round-trip time, so n of them carry min(n W / RTT, C). The path is that
of the HMC measurements between Google's regions in Europe and the US (round-trip time 103 ms, one stream 210 Mbit/s,
at most 6.2 Gbit/s for the virtual machines), with all rates divided by 62. The capped curve must be within 10 % of the
law.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from analysis.benchmarks.harness import Row
from analysis.benchmarks.sample_plans import plan
from emulation.bulk import GOODPUT_SHARE, BulkTransfer, transfer
from emulation.network import Emulation, no_record
from emulation.probe import Capabilities, probe
from testbed.plan.model import TransportPlan

RTT_S, SCALE = 0.103, 62.0
CAPACITY_BPS, WINDOW_BYTES = 6.2e9 / SCALE / GOODPUT_SHARE, int(210e6 / SCALE * RTT_S / 8)
STREAMS = (1, 2, 5, 10, 20, 40)
PUBLISHED_BPS = {1: 210e6, 5: 1058e6, 10: 2086e6, 20: 4266e6, 40: 6166e6}  # HMC's iperf logs, means of five
TOLERANCE = 0.1


def law_bps(streams: int) -> float:
    """Return min(n W / RTT, C), as payload in bit/s."""
    return min(streams * WINDOW_BYTES * 8 / RTT_S, CAPACITY_BPS * GOODPUT_SHARE)


def throughput_bps(found: Capabilities, streams: int, window_bytes: int | None, seconds: float) -> float:
    """Return the payload of ``streams`` connections together, after three seconds (or half of a shorter transfer)."""
    link = {"rate_bps": CAPACITY_BPS, "delay_s": RTT_S / 2, "queue_bytes": int(CAPACITY_BPS / 8 * RTT_S)}
    settings = plan({("dc0", "dc1"): link}, transport=TransportPlan(receive_buffer_bytes=window_bytes))
    with Emulation(settings, found, no_record) as network:
        flows = [BulkTransfer.between(network, "dc0/worker0", "dc1/worker0") for _ in range(streams)]
        transfer(flows, seconds)
        return sum(flow.goodput_bps(min(3.0, seconds / 2)) for flow in flows)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row per number of streams; the plot is written at the end."""
    found, rows = probe(), []
    for streams in STREAMS:
        capped_bps = throughput_bps(found, streams, WINDOW_BYTES, options.seconds)
        free_bps = throughput_bps(found, streams, None, options.seconds)
        ok = abs(capped_bps / law_bps(streams) - 1) <= TOLERANCE
        rows.append(
            {"streams": streams, "law_bps": law_bps(streams), "capped_bps": capped_bps, "free_bps": free_bps, "ok": ok}
        )
        yield rows[-1]
    if options.plot:
        _draw(rows, options.plot)


def _draw(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes, streams, published = figure.subplots(), [row["streams"] for row in rows], sorted(PUBLISHED_BPS.items())
    for column, look, color, label in (
        ("law_bps", "-", "#888888", "window law: min(n·W/RTT, C)"),
        ("capped_bps", "o", "#0072B2", f"emulated, W = {WINDOW_BYTES / 1e3:.0f} kB"),
        ("free_bps", "s", "#D55E00", "emulated, buffers free"),
    ):
        axes.plot(streams, [row[column] / 1e6 for row in rows], look, color=color, mfc="none", label=label)
    axes.plot([n for n, _ in published], [rate_bps / SCALE / 1e6 for _, rate_bps in published], "x", color="#000000",
              label=f"measured between Google's EU and US (1/{SCALE:.0f})")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="parallel streams", ylabel="throughput in Mbit/s", ylim=(1, 200))
    axes.set_xticks(streams, [str(n) for n in streams])
    axes.minorticks_off()
    axes.set_title(f"One path, round-trip time {RTT_S * 1e3:.0f} ms, {CAPACITY_BPS / 1e6:.0f} Mbit/s", loc="left")
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


EMULATED = True
ARGUMENTS = {
    "--plot": {"type": Path, "metavar": "FILE.png", "help": "draw the curves into FILE.png"},
    "--seconds": {"type": float, "default": 8.0, "help": "length of each transfer"},
}
