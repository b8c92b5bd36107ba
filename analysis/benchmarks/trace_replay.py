"""How closely emulated links follow a bandwidth trace with a step every 100 ms, on many links at once.

Each link is flooded a little faster than its trace allows, and what arrives is compared with the trace, second by
second. Within the contract: correlation of each link at least 0.98, mean error at most 3 %, and the 99th percentile of
the changes' lateness at most 20 ms.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from analysis.benchmarks.harness import ROOT, Benchmark, Row
from analysis.benchmarks.sample_plans import pairs_of_sites, with_link
from analysis.benchmarks.trace_tracking import FloodedLink, flood_traced_links, score
from emulation.network import Emulation, no_record
from emulation.probe import probe
from testbed.plan.model import Plan, Series
from topologies.traces import read_trace
from topologies.traces.change import resampled, scaled

TRACE = ROOT / "topologies" / "data" / "traces" / "lte-drive.csv"
STEP_S = 0.1
MEAN_BPS = 6e6  # twelve such links are within the ceiling of two cores
LEAST_CORRELATION, MOST_ERROR, MOST_LATE_S = 0.98, 0.03, 0.02


def series_of(path: Path, step_s: float = STEP_S, mean_bps: float = MEAN_BPS) -> Series:
    """The trace at steps of ``step_s`` seconds, repeated, scaled to a mean rate in bit/s."""
    trace = resampled(read_trace(path), step_s)
    mean = sum(trace.values) / len(trace.values)
    values = scaled(trace, mean_bps / mean).values
    times_s = tuple(round(number * step_s, 6) for number in range(len(values)))
    return Series(times_s=times_s, values=values, period_s=len(values) * step_s, source=path.name)


def rotated(series: Series, steps: int) -> Series:
    """The same series, begun ``steps`` later."""
    steps %= len(series.values)
    return replace(series, values=series.values[steps:] + series.values[:steps])


def traced_star(series: Series, links: int) -> Plan:
    """Pairs of sites; each pair's link follows the series from another place in it."""
    made = pairs_of_sites(links, rate_bps=MEAN_BPS, queue_bytes=60_000)
    for number in range(links):
        part = rotated(series, number * len(series.values) // links)
        made = with_link(made, f"dc{2 * number}>dc{2 * number + 1}", rate_trace=part)
    return made


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """One row over all links."""
    with Emulation(traced_star(series_of(options.trace), options.links), probe(), no_record) as network:
        network.helpers.start_monitor(time.monotonic())
        with network.measuring():
            links = flood_traced_links(network, options.seconds)
        network.helpers.finish()
        late_s = _lateness_s(network.events / "network-replay.jsonl")
    if options.windows:
        _write_windows(options.windows, links)
    scores = [score(link.windows()) for link in links]
    whole = score([window for link in links for window in link.windows()])
    worst, p99_s = min(each.correlation for each in scores), float(np.quantile(late_s, 0.99))
    yield {
        "trace": options.trace.name, "seconds": options.seconds, "links": len(links), "changes": len(late_s),
        "correlation": round(whole.correlation, 5), "worst_correlation": round(worst, 5),
        "error": round(whole.error, 5),
        "late_p50_s": float(np.median(late_s)), "late_p99_s": p99_s, "late_max_s": max(late_s),
        "load": os.getloadavg()[1],
        "ok": bool(worst >= LEAST_CORRELATION and whole.error <= MOST_ERROR and p99_s <= MOST_LATE_S),
    }  # fmt: skip


def _lateness_s(log: Path) -> list[float]:
    events = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    return [event["late_s"] for event in events if event["kind"] == "replay"]


def _write_windows(path: Path, links: Sequence[FloodedLink]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["link", "second", "planned_bits", "delivered_bits"])
        table.writerows(
            (link.name, second, *window) for link in links for second, window in enumerate(link.windows(), 1)
        )


BENCHMARK = Benchmark(
    measure=measure,
    emulated=True,
    arguments={
        "--trace": {"type": Path, "default": TRACE},
        "--seconds": {"type": float, "default": 600.0},
        "--links": {"type": int, "default": 12},
        "--windows": {"type": Path, "metavar": "FILE", "help": "write planned and delivered bits per link and second"},
    },
)
