"""Measure this machine, so that `simulate` can predict what an emulation here will show.

With runs: prints the value of `simulation.host`, and adds all constants to each run's manifest. With `--costs`: writes
what codecs, optimizers, sums and copies cost here, for `simulation.costs`; with `--on exact` in the kernel of exact
runs, whose programs need more of the processor.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from testbed.cli.options import Outcome, make_folder
from testbed.display import look
from testbed.errors import RunFailed, ScenarioError
from testbed.numbers import seconds, share

_GUEST_BYTES = 6 << 30
HELP = "measure the simulator's constants of this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="finished runs on: local or emulate")
    parser.add_argument("--costs", type=Path, metavar="FILE.csv", help="measure codecs and optimizers, in two minutes")
    parser.add_argument(
        "--on", choices=("local", "exact"), default="local",
        help="where --costs are measured: here, or in the kernel of exact runs; default: %(default)s",
    )  # fmt: skip


def _measure_costs(path: Path, where: str) -> None:
    from testbed.results import atomic

    if path.is_dir():
        raise ScenarioError(f"--costs {path}: is a folder; name a file, such as {path / 'costs.csv'}")
    make_folder(path.parent)
    atomic.write_text(path, _table_of_exact_runs() if where == "exact" else _table())


def _table() -> str:
    """Return a table of costs, measured in this process."""
    import torch

    from analysis.costs import measure
    from testbed.costs import write_costs
    from testbed.realtime.cores import fill_memory_at_once

    torch.set_num_threads(1)
    fill_memory_at_once()  # as in the nodes of exact runs
    return write_costs(measure(), f"{platform.machine()}, PyTorch {torch.__version__}")


def _table_of_exact_runs() -> str:
    from emulation.exact.guest_init import RUN_DIRECTORY
    from testbed.execution import exact

    written = "costs.csv"
    with tempfile.TemporaryDirectory(prefix="testbed-") as folder:
        command = [sys.executable, "-P", "-m", "testbed.cli.main", "calibrate", "--costs", f"{RUN_DIRECTORY}/{written}"]
        printed = exact.run_command(command, Path(folder), _GUEST_BYTES)
        table = Path(folder) / written
        if not table.exists():
            raise RunFailed(f"the kernel of exact runs ended without a table: {printed[-2000:]}")
        return table.read_text(encoding="utf-8")


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.calibrate import calibrate, write
    from analysis.load import load

    if not arguments.runs and arguments.costs is None:
        raise ScenarioError("calibrate: name finished runs, or a file to write with --costs FILE.csv")
    if arguments.on != "local" and arguments.costs is None:
        raise ScenarioError(f"--on {arguments.on}: has no effect without --costs; add --costs FILE.csv")
    if arguments.costs is not None:
        _measure_costs(arguments.costs, arguments.on)
        if not arguments.json:
            look.console().print(f"--set 'simulation.costs={{file: {arguments.costs}}}'", soft_wrap=True)
    if not arguments.runs:
        return {"kind": "costs", "file": str(arguments.costs)} if arguments.json else 0
    found = calibrate(load(arguments.runs))
    for run in arguments.runs:
        write(run, found)
    if arguments.json:
        return {"kind": "calibration", **asdict(found), "setting": found.setting()}
    rows = [
        ("cores", str(found.cores), "shared by all nodes"),
        ("message", seconds(found.message_s), "of a core, per message and end; unexplained "
         f"{share(found.residual)} of {found.nodes} nodes' processor time"),
        ("stream", f"{1e-6 / found.byte_s:.0f} MB/s", "of a core, at each end"),
        ("step", seconds(found.step_s), "of a core, per training step with its overhead"),
        ("memory", f"{1e-9 / found.memory_s:.2f} GB/s", "of a core, for sums"),
        ("idle", share(found.idle_share), "of a core, for each idle node"),
    ]  # fmt: skip
    if found.packet_s:
        rows.append(("packet", seconds(found.packet_s), "of a core, per segment on the WAN: cost of the emulation"))
    for name, link in found.links.items():
        rate, rtt = share(link.get("rate_factor")), seconds(link.get("more_rtt_s"))
        rows.append((name, rate, f"of its planned rate; round trip {rtt} more than planned"))
    look.console().print(look.table("", "constant", ">value", "", rows=rows))
    look.console().print(f"--set 'simulation.host={found.setting()}'", soft_wrap=True)
    return 0
