"""``python -m emulation.accuracy streams``: throughput against parallel streams, with capped and with free buffers.

One TCP connection carries no more than its window in a round trip, so n of them carry min(n W / RTT, C). The path is
that of the HMC measurements between Google's europe and us regions (round trip 103 ms, 1 stream 210 Mbit/s, at most
6.2 Gbit/s for the virtual machines), with all rates divided by 62.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from emulation.bulk import GOODPUT_SHARE, BulkTransfer, transfer
from emulation.network import Emulation
from emulation.probe import Capabilities, probe
from emulation.sample_plans import plan
from testbed.plan.model import TransportPlan

RTT_S, SCALE = 0.103, 62.0
CAPACITY_BPS, WINDOW_BYTES = 6.2e9 / SCALE / GOODPUT_SHARE, int(210e6 / SCALE * RTT_S / 8)
STREAMS = (1, 2, 5, 10, 20, 40)
PUBLISHED_BPS = {1: 210e6, 5: 1058e6, 10: 2086e6, 20: 4266e6, 40: 6166e6}  # HMC's iperf logs, means of five
TOLERANCE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("streams"), help="written as OUT.csv and OUT.png")
    parser.add_argument("--seconds", type=float, default=8.0)


def law_bps(streams: int) -> float:
    """The window law, as payload."""
    return min(streams * WINDOW_BYTES * 8 / RTT_S, CAPACITY_BPS * GOODPUT_SHARE)


def throughput_bps(found: Capabilities, streams: int, window_bytes: int | None, seconds: float) -> float:
    """Payload of ``streams`` connections together, after three seconds."""
    transport = TransportPlan(receive_buffer_bytes=window_bytes)
    queue = int(CAPACITY_BPS / 8 * RTT_S)
    link = {"rate_bps": CAPACITY_BPS, "delay_s": RTT_S / 2, "queue_bytes": queue}
    with Emulation(plan({("dc0", "dc1"): link}, transport=transport), found, lambda kind, **fields: None) as network:
        ends = (network.namespace_path("dc0/worker0"), network.namespace_path("dc1/worker0"))
        flows = [BulkTransfer("", *ends, network.address("dc1/worker0")) for _ in range(streams)]
        transfer(flows, seconds)
        return sum(flow.goodput_bps(min(3.0, seconds / 2)) for flow in flows)


def run(options: argparse.Namespace) -> int:
    """Measure, write and print; 1 if the capped curve leaves the law by more than a tenth."""
    found, rows = probe(), []
    for streams in STREAMS:
        capped = throughput_bps(found, streams, WINDOW_BYTES, options.seconds)
        free = throughput_bps(found, streams, None, options.seconds)
        rows.append((streams, law_bps(streams), capped, free))
        shown = f"law {rows[-1][1] / 1e6:6.1f}, capped {capped / 1e6:6.1f}, free {free / 1e6:6.1f} Mbit/s"
        print(f"{streams:3} streams: {shown}")  # noqa: T201 - a command
        sys.stdout.flush()
    with open(options.out.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["streams", "law_bps", "capped_bps", "free_bps"])
        table.writerows(rows)
    _draw(rows, options.out.with_suffix(".png"))
    return 1 if any(abs(capped / law - 1) > TOLERANCE for _, law, capped, _ in rows) else 0


def _draw(rows: list[tuple[int, float, float, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    streams = [row[0] for row in rows]
    axes.plot(streams, [row[1] / 1e6 for row in rows], color="#888888", label="window law: min(n·W/RTT, C)")
    axes.plot(
        streams,
        [row[2] / 1e6 for row in rows],
        "o",
        color="#0072B2",
        label=f"emulated, W = {WINDOW_BYTES / 1e3:.0f} kB",
    )
    axes.plot(streams, [row[3] / 1e6 for row in rows], "s", color="#D55E00", mfc="none", label="emulated, buffers free")
    published = sorted(PUBLISHED_BPS.items())
    axes.plot(
        [n for n, _ in published], [rate / SCALE / 1e6 for _, rate in published], "x", color="#000000",
        label=f"measured between Google's EU and US (1/{SCALE:.0f})",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="parallel streams", ylabel="throughput in Mbit/s", ylim=(1, 200))
    axes.set_xticks(streams, [str(n) for n in streams])
    axes.minorticks_off()
    axes.set_title(f"One path, round trip {RTT_S * 1e3:.0f} ms, {CAPACITY_BPS / 1e6:.0f} Mbit/s", loc="left")
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
