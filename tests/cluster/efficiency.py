"""What a cluster costs: simulated points on one-core machines, and at the same time the same points without a cluster.

``python -m tests.cluster.efficiency --points 200 --machines 4``. The machines are namespaces of this one. Compared are
processor times, of the command and all that it starts, raylets included: both sweeps run as many points at once, and
share the cores, so what else this machine does makes both slower alike.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.processor_time import KindMeter, ProcessorAccount, control_group
from tests.cluster.raylets import raylets
from tests.cluster.sweeping import SMALL, begin, places, sweep

_IDLE_S = 10.0
KINDS = {
    "raylet/raylet ": "raylets",  # first: it names what it starts
    "sweep_machine": "points",
    "testbed.cli.main": "command",
    "DashboardAgent": "agents of Ray",
    "RuntimeEnvAgent": "agents of Ray",
    "ray::": "workers of Ray",
    "setup_worker.py": "workers of Ray",
    "default_worker.py": "workers of Ray",
    "log_monitor.py": "monitors of logs",
    "gcs_server": "GCS",
    "ray": "other processes of Ray",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=100, help="of each point")
    parser.add_argument("--machines", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as end:
        folder = Path(name)
        folder.joinpath("small.yaml").write_text(SMALL)
        more = ["--seeds", str(arguments.points // 4), "--set", f"training.rounds={arguments.rounds}"]
        here, there = ([*sweep(folder / "small.yaml", folder / out), *more] for out in ("here", "there"))
        one, many = (end.enter_context(control_group(place)) for place in ("here", "there"))
        with many.joined():
            cluster = end.enter_context(raylets(workers=arguments.machines))
        idle_share = _share_of_a_core(many)
        meter, begin_s = KindMeter(many, KINDS, forking="points"), time.monotonic()
        with many.joined():
            process = begin(cluster, there)
        with one.joined():
            alone = subprocess.Popen([*here, "--jobs", str(arguments.machines)], stdout=subprocess.DEVNULL)
        output, _ = process.communicate()
        wall_s, used = time.monotonic() - begin_s, meter.stop()
        assert (process.returncode, alone.wait()) == (0, 0), output
        same = (folder / "here/sweep.csv").read_bytes() == (folder / "there/sweep.csv").read_bytes()
        own_s, used_s, idle_s = one.used_s(), used.total(), idle_share * wall_s
        print(f"{arguments.points} points, {len(set(places(folder / 'there').values()))} machines, same table: {same}")
    print(f"one machine: {own_s:.1f} s of processors")
    print(f"cluster:     {used_s:.1f} s, of which an idle cluster takes {idle_s:.1f} s in {wall_s:.0f} s:")
    print(", ".join(f"{kind} {kind_s:.1f} s" for kind, kind_s in used.most_common()))
    print(f"efficiency {own_s / (used_s - idle_s):.3f}, {own_s / used_s:.3f} with what an idle cluster takes, which is "
          f"{idle_share / (arguments.machines + 1):.1%} of a core on each machine")  # fmt: skip


def _share_of_a_core(group: ProcessorAccount) -> float:
    """Return what an idle cluster uses, in cores."""
    time.sleep(_IDLE_S)  # its processes end to start
    before_s, begin_s = group.used_s(), time.monotonic()
    time.sleep(_IDLE_S)
    return (group.used_s() - before_s) / (time.monotonic() - begin_s)


if __name__ == "__main__":
    main()
