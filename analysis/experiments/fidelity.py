"""Emulated against simulated time of a round, for every technique in scenarios/geomx at 20 and at 100 Mbit/s.

python -m analysis.experiments.fidelity OUT [--rates 20 100] [--rounds 24] [--host VALUE] [--control bbr]

A table with the error of each, and their median. Finished runs are kept. The first rounds of a run warm its connections
up, with losses that the simulation does not have: a short run compares those, a long one the steady state.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from analysis.experiments import virtual
from analysis.experiments.command import rounds_s, run
from analysis.experiments.stragglers import write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenarios", type=Path, default=Path("scenarios/geomx"))
    parser.add_argument("--rates", type=float, nargs="+", default=[20.0, 100.0], help="Mbit/s of every link")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--host", help="simulation.host of the simulated runs, as `testbed calibrate` prints it")
    parser.add_argument("--control", default="cubic", help="TCP's congestion control in both worlds")
    chosen = parser.parse_args()
    rounds = f"training.rounds={chosen.rounds}", f"training.evaluate_every={chosen.rounds}"
    host = [f"simulation.host={chosen.host}"] if chosen.host else []
    errors: dict[float, list[float]] = {}
    write(f"{'technique':16} {'Mbit/s':>7} {'emulated':>11} {'simulated':>11} {'error':>8}")
    for rate in chosen.rates:
        for path in sorted(chosen.scenarios.glob("*.yaml")):
            settings = (f"topology.links[*].rate={rate:g} Mbit/s", "training.target_accuracy=null", *rounds,
                        f"transport.congestion_control={chosen.control}")  # fmt: skip
            emulated = run(path, "emulate", chosen.out / f"{rate:g}" / path.stem, settings)
            real_s = statistics.fmean(emulated.rounds_s() or [float("nan")])
            virtual_s = statistics.fmean(rounds_s(virtual.run(path.read_text(), *settings, *host).events))
            error = virtual_s / real_s - 1
            errors.setdefault(rate, []).append(abs(error))
            times = f"{real_s:9.4f} s {virtual_s:9.4f} s"
            problem = "" if emulated.status == "done" else f"  {emulated.status}"
            write(f"{path.stem:16} {rate:7g} {times} {error:8.1%}{problem}")
    for rate, found in errors.items():
        write(f"{rate:g} Mbit/s: median error {statistics.median(found):.1%}, largest {max(found):.1%}")
    write(f"all: median error {statistics.median([error for found in errors.values() for error in found]):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
