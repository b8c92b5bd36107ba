"""What a cluster costs: 200 simulated points on one-core machines, against the same points on this machine's own cores.

``python -m tests.cluster.efficiency --points 200 --machines 4``. The machines are namespaces of this one and share its
cores, so that the same processors do the same work in both. Processor time is of the command and all that it starts,
raylets included; it does not depend on what else the machine does.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.cluster.raylets import ROOT, Raylets, raylets
from tests.cluster.sweeping import SMALL, begin, places, sweep

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_ROUNDS = "training.rounds=40"
KINDS = {"points": "sweep_machine", "workers of Ray": "ray::testbed", "command": "testbed.cli.main"}


class Meter:
    """Adds up the processor time of all processes on the machines of a cluster, also of those that end meanwhile."""

    def __init__(self, cluster: Raylets) -> None:
        self._machines, self._before, self._now = cluster.machines, dict[int, float](), dict[int, float]()
        self._kinds: dict[int, str] = {}
        self._look()
        self._before = dict(self._now)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> Counter[str]:
        """Return the seconds by kind of process."""
        self._over.set()
        self._thread.join()
        used = Counter[str]()
        for pid, used_s in self._now.items():
            used[self._kinds[pid]] += used_s - self._before.get(pid, 0.0)
        return used

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self._look()

    def _look(self) -> None:
        for machine in self._machines:
            for pid, text in machine.processes().items():
                kinds = [kind for kind, word in KINDS.items() if word in text]
                self._kinds[pid] = kinds[0] if kinds else "raylets"
                with suppress(OSError):
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    self._now[pid] = sum(map(int, fields[11:15])) * _TICK_S  # with children that were waited for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--machines", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "small.yaml"
        scenario.write_text(SMALL)
        more = ["--seeds", str(arguments.points // 4), "--set", _ROUNDS]
        here, there = Path(folder) / "here", Path(folder) / "there"
        before, begin_s = os.times(), time.monotonic()
        subprocess.run([*sweep(scenario, here), *more], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        after = os.times()
        own_s, own_wall_s = sum(after[2:4]) - sum(before[2:4]), time.monotonic() - begin_s
        with raylets(workers=arguments.machines) as cluster:
            meter, begin_s = Meter(cluster), time.monotonic()
            output, _ = (process := begin(cluster, [*sweep(scenario, there), *more])).communicate()
            wall_s, used = time.monotonic() - begin_s, meter.stop()
            assert process.returncode == 0, output
        same = (here / "sweep.csv").read_bytes() == (there / "sweep.csv").read_bytes()
        print(f"{arguments.points} points, {len(set(places(there).values()))} machines, the same table: {same}")
        print(f"one machine: {own_s:.1f} s of processors in {own_wall_s:.1f} s")
        print(f"cluster:     {used.total():.1f} s of processors in {wall_s:.1f} s:")
        print(", ".join(f"{kind} {used_s:.1f} s" for kind, used_s in used.most_common()))
        print(f"efficiency by processor time {own_s / used.total():.2f}, by wall time {own_wall_s / wall_s:.2f}")


if __name__ == "__main__":
    main()
