"""What a cluster costs: 200 simulated points on one-core machines, against the same points on this machine's own cores.

``python -m tests.cluster.efficiency --points 200 --machines 4``. The machines are namespaces of this one and share its
cores, so that the same processors do the same work in both. Processor time is of the command and all that it starts,
raylets included; it does not depend on what else the machine does.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.processor_time import KindMeter, control_group
from tests.cluster.raylets import ROOT, raylets
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
    parser.add_argument("--rounds", type=int, default=40, help="of each point")
    parser.add_argument("--machines", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "small.yaml"
        scenario.write_text(SMALL)
        more = ["--seeds", str(arguments.points // 4), "--set", f"training.rounds={arguments.rounds}"]
        here, there = Path(folder) / "here", Path(folder) / "there"
        own_s, own_wall_s = _on_one_machine([*sweep(scenario, here), *more])
        wall_s, used, idle = _on_a_cluster([*sweep(scenario, there), *more], arguments.machines)
        same = (here / "sweep.csv").read_bytes() == (there / "sweep.csv").read_bytes()
        print(f"{arguments.points} points, {len(set(places(there).values()))} machines, the same table: {same}")
    used_s, idle_s = used.total(), idle * wall_s
    print(f"one machine: {own_s:.1f} s of processors in {own_wall_s:.1f} s")
    print(
        f"cluster:     {used_s:.1f} s of processors in {wall_s:.1f} s, {idle_s:.1f} s of which it uses without a sweep:"
    )
    print(", ".join(f"{kind} {kind_s:.1f} s" for kind, kind_s in used.most_common()))
    print(f"efficiency by processor time {own_s / used_s:.3f}, without what an idle cluster uses "
          f"{own_s / (used_s - idle_s):.3f}, by wall time {own_wall_s / wall_s:.2f}")  # fmt: skip


def _on_one_machine(command: list[str]) -> tuple[float, float]:
    """Return the seconds of processors, and of the wall clock."""
    begin_s = time.monotonic()
    with control_group("here") as group:
        with group.joined():
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        assert process.wait() == 0
        return group.used_s(), time.monotonic() - begin_s


def _on_a_cluster(command: list[str], machines: int) -> tuple[float, Counter[str], float]:
    """Return the seconds of the wall clock, those of processors by kind of process, and those a second when idle."""
    with control_group("cluster") as group, ExitStack() as end:
        with group.joined():
            cluster = end.enter_context(raylets(workers=machines))
        time.sleep(_IDLE_S)  # its processes end to start
        before_s = group.used_s()
        time.sleep(_IDLE_S)
        idle = (group.used_s() - before_s) / _IDLE_S
        meter, begin_s = KindMeter(group, KINDS, forking="points"), time.monotonic()
        with group.joined():
            process = begin(cluster, command)
        output, _ = process.communicate()
        wall_s, used = time.monotonic() - begin_s, meter.stop()
        assert process.returncode == 0, output
        return wall_s, used, idle


if __name__ == "__main__":
    main()
