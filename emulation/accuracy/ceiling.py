"""``python -m emulation.accuracy ceiling``: up to which rate do links keep the contract on this machine?

The rate of each link doubles until one misses 2 % of its goodput, for one link and for twelve at once.
"""

from __future__ import annotations

import argparse
import os
import sys

from emulation.accuracy.contract import RATE_ERROR, rate_rows
from emulation.monitor import CEILING_BPS_PER_CORE
from emulation.probe import probe

FIRST_BPS, LAST_BPS = 60e6, 2e9  # of all links together
ATTEMPTS = 2  # a busy moment is no ceiling


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--links", type=lambda text: tuple(int(number) for number in text.split(",")), default=(1, 12))
    parser.add_argument("--seconds", type=float, default=4.0)


def run(options: argparse.Namespace) -> int:
    """Print every step, and the ceiling beside the declared one."""
    found = probe()
    method = found.delay_method()
    declared = CEILING_BPS_PER_CORE[method] * (os.cpu_count() or 1)
    for links in options.links:
        total, held = FIRST_BPS, 0.0
        while total <= LAST_BPS:
            best = min(
                (
                    row
                    for _ in range(ATTEMPTS)
                    for row in rate_rows(found, total / links, "cubic", links, options.seconds)
                ),
                key=lambda row: abs(row.error),
            )
            print(best, flush=True)  # noqa: T201 - a command
            if abs(best.error) > RATE_ERROR:
                break
            held, total = total, total * 2
        print(f"{links} links: {held / 1e6:g} Mbit/s together hold; declared for {method}: {declared / 1e6:g}")  # noqa: T201
        sys.stdout.flush()
    return 0
