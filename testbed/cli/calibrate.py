"""Measure what codecs, optimizers, sums and copies cost on this machine, for `simulation.costs`.

With `--on exact`, measure in the kernel of exact runs, where programs need more processor time.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from pathlib import Path

from testbed.cli.options import Outcome, make_folder
from testbed.display import look
from testbed.errors import RunFailed, ScenarioError

_GUEST_BYTES = 6 << 30
HELP = "measure what codecs and optimizers cost here, for the simulator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--costs", type=Path, metavar="FILE.csv", required=True, help="the table to write, in two minutes"
    )
    parser.add_argument(
        "--on",
        choices=("local", "exact"),
        default="local",
        help="where costs are measured: here, or in the kernel of exact runs; default: %(default)s",
    )


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.results import atomic

    path: Path = arguments.costs
    if path.is_dir():
        raise ScenarioError(f"--costs {path}: is a folder; name a file, such as {path / 'costs.csv'}")
    make_folder(path.parent)
    atomic.write_text(path, _table_of_exact_runs() if arguments.on == "exact" else _table())
    if arguments.json:
        return {"kind": "costs", "file": str(path)}
    look.console().print(f"--set 'simulation.costs={{file: {path}}}'", soft_wrap=True)
    return 0


def _table() -> str:
    """Return a table of costs, measured in this process."""
    import torch

    from analysis.costs import measure
    from testbed.costs import write_costs
    from testbed.realtime.cores import fill_memory_at_once

    torch.set_num_threads(1)
    fill_memory_at_once()  # as nodes of exact runs do
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
