"""Measure this machine, so that `simulate` can predict what an emulation here will show.

With runs: prints the value of `simulation.host`, and adds all constants to each run's manifest. With `--costs`: writes
what codecs and optimizers cost here, for `simulation.costs`.
"""

from __future__ import annotations

import argparse
import os
import platform
from dataclasses import asdict
from pathlib import Path

from testbed.cli.options import Outcome
from testbed.display import look
from testbed.errors import ScenarioError

HELP = "measure the simulator's constants of this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="finished runs on: local or emulate")
    parser.add_argument("--costs", type=Path, metavar="FILE.csv", help="measure codecs and optimizers, in two minutes")


def _measure_costs(path: Path) -> None:
    import torch

    from analysis.costs import measure, sum_byte_s
    from testbed.costs import write_costs
    from testbed.results import atomic

    torch.set_num_threads(1)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, PyTorch {torch.__version__}"
    about = f"{machine}; sums {1e-9 / sum_byte_s():.1f} GB/s"
    atomic.write_text(path, write_costs(measure(), about))
    look.console().print(f"--set 'simulation.costs={{file: {path}}}'", markup=False, soft_wrap=True)


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.calibrate import calibrate, write
    from analysis.load import load

    if not arguments.runs and arguments.costs is None:
        raise ScenarioError("calibrate: name finished runs, or a file to write with --costs FILE.csv")
    if arguments.costs is not None:
        _measure_costs(arguments.costs)
    if not arguments.runs:
        return {"kind": "costs", "file": str(arguments.costs)} if arguments.json else 0
    found = calibrate(load(arguments.runs))
    for run in arguments.runs:
        write(run, found)
    if arguments.json:
        return {"kind": "calibration", **asdict(found), "setting": found.setting()}
    rows = [
        ("cores", str(found.cores), "shared by all nodes"),
        ("message", look.seconds(found.message_s), "of a core, per message and end; unexplained "
         f"{look.share(found.residual)} of {found.nodes} nodes' processor time"),
        ("stream", f"{1e-6 / found.byte_s:.0f} MB/s", "of a core, at each end"),
        ("step", look.seconds(found.step_s), "of a core, per training step with its overhead"),
        ("memory", f"{1e-9 / found.memory_s:.2f} GB/s", "of a core, for sums"),
        ("idle", look.share(found.idle_share), "of a core, for each idle node"),
    ]  # fmt: skip
    if found.packet_s:
        rows.append(
            ("packet", look.seconds(found.packet_s), "of a core, per segment on the WAN: cost of the emulation")
        )
    for name, link in found.links.items():
        rate, rtt = look.share(link.get("rate_factor")), look.seconds(link.get("more_rtt_s"))
        rows.append((name, rate, f"of its planned rate; round trip {rtt} more than planned"))
    look.console().print(look.table("", "constant", ">value", "", rows=rows))
    look.console().print(f"--set 'simulation.host={found.setting()}'", markup=False, soft_wrap=True)
    return 0
