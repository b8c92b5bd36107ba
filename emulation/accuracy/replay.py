"""``python -m emulation.accuracy replay``: a trace at 100 ms steps on many links at once."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from emulation.children import MEASURE_PRIORITY, realtime
from emulation.follow import TrackingScore, follow, score
from emulation.network import Emulation
from emulation.probe import probe
from emulation.sample_plans import plan, with_link
from testbed.plan.model import Plan, Series
from topologies.traces import read_trace
from topologies.traces.change import resampled, scaled

TRACE = Path(__file__).resolve().parents[2] / "topologies" / "data" / "traces" / "lte-drive.csv"
STEP_S = 0.1
MEAN_BPS = 6e6  # twelve of them are within the ceiling of two cores
LEAST_CORRELATION, MOST_ERROR, MOST_LATE_S = 0.98, 0.03, 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--links", type=int, default=12)
    parser.add_argument("--csv", type=Path, help="planned and delivered bits of every link and second")
    parser.add_argument("--json", action="store_true")


def series_of(path: Path, step_s: float = STEP_S, mean_bps: float = MEAN_BPS) -> Series:
    """The trace at steps of ``step_s``, repeated, scaled to a mean rate."""
    trace = resampled(read_trace(path), step_s)
    period_s = len(trace.values) * step_s
    mean = sum(trace.values) / len(trace.values)
    changed = scaled(trace, mean_bps / mean)
    times_s = tuple(round(number * step_s, 6) for number in range(len(changed.values)))
    return Series(times_s=times_s, values=changed.values, period_s=period_s, source=path.name)


def rotated(series: Series, steps: int) -> Series:
    """The same, begun later in it."""
    steps %= len(series.values)
    return replace(series, values=series.values[steps:] + series.values[:steps])


def traced_star(series: Series, links: int) -> Plan:
    """Pairs of sites; each pair's link follows the series from another place in it on."""
    pairs = {
        (f"dc{2 * each}", f"dc{2 * each + 1}"): {"rate_bps": MEAN_BPS, "queue_bytes": 60_000} for each in range(links)
    }
    routes: dict[str, tuple[str, ...]] = {f"{a}>{b}": (f"{a}>{b}",) for pair in pairs for a, b in (pair, pair[::-1])}
    made = plan(dict(pairs), sites=2 * links, routes=routes)
    for number in range(links):
        part = rotated(series, number * len(series.values) // links)
        made = with_link(made, f"dc{2 * number}>dc{2 * number + 1}", rate_trace=part)
    return made


def run(options: argparse.Namespace) -> int:
    """Measure and print; 1 if it is outside the contract."""
    series = series_of(options.trace)
    found = probe()
    with Emulation(traced_star(series, options.links), found, lambda kind, **fields: None) as network:
        epoch_s = time.monotonic()
        network.start_monitor(epoch_s)
        with realtime(MEASURE_PRIORITY if found.realtime else None):
            flows = follow(network, options.seconds)
        network.finish()
        late = sorted(_late(network.events / "network-replay.jsonl"))
    scores = {flow.link: score(flow.windows()) for flow in flows}
    whole = score([pair for flow in flows for pair in flow.windows()])
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["link", "second", "planned_bits", "delivered_bits"])
            rows.writerows(
                (flow.link, second, *pair) for flow in flows for second, pair in enumerate(flow.windows(), 1)
            )
    return _report(options, whole, scores, late)


def _late(log: Path) -> list[float]:
    events = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    return [event["late_s"] for event in events if event["kind"] == "replay"]


def _report(
    options: argparse.Namespace, whole: TrackingScore, scores: dict[str, TrackingScore], late: Sequence[float]
) -> int:
    worst = min(each.correlation for each in scores.values())
    p99_s = late[int(len(late) * 0.99)]
    ok = worst >= LEAST_CORRELATION and whole.error <= MOST_ERROR and p99_s <= MOST_LATE_S
    result = {
        "trace": options.trace.name, "seconds": options.seconds, "links": len(scores), "changes": len(late),
        "correlation": round(whole.correlation, 5), "worst_correlation": round(worst, 5),
        "error": round(whole.error, 5),
        "late_p50_s": late[len(late) // 2], "late_p99_s": p99_s, "late_max_s": late[-1], "ok": ok,
        "load": os.getloadavg()[1],
    }  # fmt: skip
    if options.json:
        print(json.dumps(result))  # noqa: T201 - a command
    else:
        for name, value in result.items():
            print(f"{name:18} {value}")  # noqa: T201 - a command
        limits = (
            f"correlation >= {LEAST_CORRELATION}, error <= {MOST_ERROR:.0%}, late p99 <= {MOST_LATE_S * 1e3:.0f} ms"
        )
        print(f"{'contract':18} {limits}: {'ok' if ok else 'OUTSIDE'}")  # noqa: T201 - a command
    sys.stdout.flush()
    return 0 if ok else 1
