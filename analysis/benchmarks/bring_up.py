"""Time to bring one emulated network up: data centres in a ring."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from analysis.benchmarks.harness import Row
from analysis.benchmarks.sample_plans import ring
from emulation.network import Emulation, no_record
from emulation.probe import probe


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row, when the monitor runs and before the network ends."""
    with Emulation(ring(options.sites, options.workers), probe(), no_record) as network:
        network.helpers.start_monitor(time.monotonic())
        yield {"sites": options.sites, "workers": options.workers, "bring_up_s": network.bring_up_s}


EMULATED = True
ARGUMENTS = {
    "--sites": {"type": int, "default": 4},
    "--workers": {"type": int, "default": 3, "help": "hosts per site"},
}
