"""The highest rates at which emulated links are accurate on this machine.

The rate of all links together doubles from 60 Mbit/s until a link misses 2 % of its goodput, for one link and for
twelve at once. The last row of each number of links compares the result with the rate up to which a run gives no
warning (``emulation.monitor``).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from analysis.benchmarks.harness import Row, listed
from analysis.benchmarks.links import rate_row
from emulation.monitor import CEILING_BPS_PER_CORE
from emulation.probe import probe

FIRST_BPS, LAST_BPS = 60e6, 2e9  # of all links together
ATTEMPTS = 2  # the better one counts: a busy moment is not a ceiling


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for every step, then one with the ceiling."""
    found = probe()
    method = found.delay_method()
    declared_bps = CEILING_BPS_PER_CORE[method] * len(os.sched_getaffinity(0))
    for links in options.links:
        total_bps, held_bps = FIRST_BPS, 0.0
        while total_bps <= LAST_BPS:
            attempts = [rate_row(found, total_bps / links, "cubic", links, options.seconds) for _ in range(ATTEMPTS)]
            best = min(attempts, key=lambda row: abs(row["error"]))
            yield {name: value for name, value in best.items() if name != "ok"}  # that the last one fails is the aim
            if not best["ok"]:
                break
            held_bps, total_bps = total_bps, total_bps * 2
        yield {"links": links, "ceiling_mbps": held_bps / 1e6, "declared_mbps": declared_bps / 1e6, "method": method}


EMULATED = True
ARGUMENTS = {
    "--links": {"type": listed(int), "default": (1, 12), "metavar": "N,…"},
    "--seconds": {"type": float, "default": 4.0, "help": "length of each transfer"},
}
