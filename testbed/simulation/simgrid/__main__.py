"""The flow network against SimGrid's C++ on the same graphs of transfers: times of every transfer, and speed.

    apt-get install libsimgrid-dev g++
    python -m testbed.simulation.simgrid            prints a table; exit code 1 where they differ by more than 1e-6

SimGrid runs its CM02 model without window limit and cross traffic. It has an actor for each
transfer; its time is that of ``Engine::run`` alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from testbed.simulation.simgrid.graph import Graph, random_traffic, ring, star, two_tier
from testbed.simulation.simgrid.replay import replay

TOLERANCE = 1e-6
_TIMEOUT_S = 300
_MODEL = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "maxmin/precision:1e-12",
          "surf/precision:1e-12", "contexts/factory:raw",
          "contexts/stack-size:32", "contexts/guard-size:0")  # fmt: skip
WORKLOADS: dict[str, Callable[[], Graph]] = {
    "star of 300": lambda: star(300),
    "ring of 64": lambda: ring(64),
    "random pairs, 100 sites": lambda: random_traffic(100, 2000),
    "two tiers, 10 x 10": lambda: two_tier(10, 10),
    "two tiers, 100 x 10": lambda: two_tier(100, 10),
    "two tiers, 1000 x 10": lambda: two_tier(1000, 10),
    "two tiers, 100 x 10, 5 rounds": lambda: two_tier(100, 10, 5),
}  # fmt: skip


def compiled_program(folder: Path) -> Path:
    """SimGrid's side, built. ``OSError`` or ``CalledProcessError`` without the library or a compiler."""
    source, program = Path(__file__).with_name("graph.cpp"), folder / "graph"
    command = ["g++", "-O2", "-std=c++17", "-o", str(program), str(source), "-lsimgrid"]
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
    return program


def simgrid_times(program: Path, graph: Graph, folder: Path) -> tuple[list[float], float, float]:
    """When each transfer ends; seconds of building the platform and of the run."""
    path = folder / "graph.txt"
    path.write_text(graph.text())
    options = [option for each in _MODEL for option in (f"--cfg={each}",)]
    command = [str(program), str(path), *options, "--log=root.threshold:error"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    *ends, seconds = ran.stdout.split("\n")[:-1]
    before_s, run_s = seconds.split()
    return [float(end) for end in ends], float(before_s), float(run_s)


def worst_difference(ours: list[float], theirs: list[float]) -> float:
    """The largest relative difference of the time at which a transfer ended."""
    return max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))


def main() -> int:
    if shutil.which("g++") is None or not Path("/usr/include/simgrid/s4u.hpp").is_file():
        sys.stderr.write("SimGrid or g++ is not installed: apt-get install libsimgrid-dev g++\n")
        return 3
    replay(two_tier(2, 2), compiled=True)  # numba compiles
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled_program(folder)
        sys.stdout.write(
            f"{'workload':32}{'transfers':>10}{'end (s)':>18}{'difference':>12}{'ours':>9}{'SimGrid':>9}\n"
        )
        for title, make in WORKLOADS.items():
            graph = make()
            begin_s = time.perf_counter()
            ours = replay(graph, compiled=True)
            took_s = time.perf_counter() - begin_s
            theirs, _, run_s = simgrid_times(program, graph, folder)
            difference = worst_difference(ours, theirs)
            worst = max(worst, difference)
            sys.stdout.write(
                f"{title:32}{len(ours):10}{max(ours):18.9f}{difference:12.1e}{took_s:8.3f}s{run_s:8.3f}s\n"
            )
    sys.stdout.write(f"largest difference {worst:.1e}, bound {TOLERANCE:g}\n")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
