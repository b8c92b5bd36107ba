"""The flow network against SimGrid's C++ (Casanova et al., JPDC 2014) on the same graphs of transfers: the end of every
transfer, and the speed.

    apt-get install libsimgrid-dev g++
    testbed bench simgrid

SimGrid runs its CM02 model without window limit and cross traffic, with one actor per transfer; its time is that of
``Engine::run`` alone. ``difference`` is the largest relative difference of a transfer's end.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.benchmarks.harness import Benchmark, Row
from analysis.benchmarks.simgrid_graph import Graph, random_traffic, replay, ring, star, two_tier

TOLERANCE = 1e-6
_TIMEOUT_S = 300
_OPTIONS = ("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "maxmin/precision:1e-12",
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
}


def installed() -> bool:
    """Return whether SimGrid and a compiler are installed."""
    return shutil.which("g++") is not None and Path("/usr/include/simgrid/s4u.hpp").is_file()


def compiled_program(folder: Path) -> Path:
    """Compile SimGrid's side. Raise ``OSError`` or ``CalledProcessError`` without a compiler or the library."""
    source, program = Path(__file__).with_name("simgrid_graph.cpp"), folder / "graph"
    command = ["g++", "-O2", "-std=c++17", "-o", str(program), str(source), "-lsimgrid"]
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
    return program


def simgrid_times(program: Path, graph: Graph, folder: Path) -> tuple[list[float], float]:
    """Return when each transfer ends in SimGrid, and the seconds of wall-clock time of its run."""
    path = folder / "graph.txt"
    path.write_text(graph.text(), encoding="utf-8")
    command = [str(program), str(path), *(f"--cfg={option}" for option in _OPTIONS), "--log=root.threshold:error"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    *ends, run_s = ran.stdout.split()
    return [float(end) for end in ends], float(run_s)


def worst_difference(ours: list[float], theirs: list[float]) -> float:
    """Return the largest relative difference of a transfer's end; infinite if one does not end."""
    differences = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row per workload."""
    if not installed():
        raise SystemExit("SimGrid or g++ is not installed: apt-get install libsimgrid-dev g++")
    replay(two_tier(2, 2), compiled=True)  # numba compiles
    with tempfile.TemporaryDirectory() as name:
        program = compiled_program(Path(name))
        for title, make in WORKLOADS.items():
            graph = make()
            begin_s = time.perf_counter()
            ours = replay(graph, compiled=True)
            ours_s = time.perf_counter() - begin_s
            theirs, theirs_s = simgrid_times(program, graph, Path(name))
            difference = worst_difference(ours, theirs)
            yield {
                "workload": title.ljust(30), "transfers": len(ours), "end_s": max(ours), "difference": difference,
                "ours_s": ours_s, "simgrid_s": theirs_s, "ok": difference <= TOLERANCE,
            }  # fmt: skip


BENCHMARK = Benchmark(measure=measure)
