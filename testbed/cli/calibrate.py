"""Measure this machine by real runs on it, so that `simulate` can predict what an emulation here will show.

Prints the value of `simulation.host`, and adds all constants to each run's manifest.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

HELP = "fit the simulator's constants of this machine to real runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="finished runs on: local or emulate")


def execute(arguments: argparse.Namespace) -> int:
    from analysis.calibrate import calibrate, write
    from analysis.load import load
    from testbed.cli import look

    found = calibrate(load(arguments.runs))
    for run in arguments.runs:
        write(run, found)
    if arguments.json:
        print(json.dumps({"kind": "calibration", **asdict(found), "setting": found.setting()}))
        return 0
    shown = look.table("", "constant", ">value", "")
    shown.add_row("cores", str(found.cores), "shared by all nodes")
    shown.add_row("message", look.seconds(found.message_s), "of a core, per message and end; unexplained "
                  f"{look.share(found.residual, 0)} of {found.nodes} nodes' processor time")  # fmt: skip
    shown.add_row("stream", f"{1e-6 / found.byte_s:.0f} MB/s", "of a core, through each end")
    shown.add_row("step", look.seconds(found.step_s), "of a core, with all that belongs to it")
    shown.add_row("memory", f"{1e-9 / found.memory_s:.2f} GB/s", "of a core, in sums")
    shown.add_row("idle", look.share(found.idle_share, 1), "of a core, for each node, whatever happens")
    if found.packet_s:
        shown.add_row("packet", look.seconds(found.packet_s), "of a core, per segment on the WAN: what emulating costs")
    for name, link in found.links.items():
        rate, rtt = link.get("rate_factor"), link.get("more_rtt_s")
        shown.add_row(name, look.share(rate), f"of its planned rate; round trip {look.seconds(rtt)} more than planned")
    look.console().print(shown)
    look.console().print(f"--set 'simulation.host={found.setting()}'", markup=False, soft_wrap=True)
    return 0
