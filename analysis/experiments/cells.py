"""Random cells of the composition matrix, in real processes and in virtual time: both end, and with the same bits.

    python -m analysis.experiments.cells OUT [--on emulate] [--cells 20] [--seed 1]

A cell is a pair of values of two axes; the other axes get values by chance, such that nothing is refused. Bits are
compared where they cannot depend on times: where everybody waits for all, numbers of steps are given, and nothing is
added up on its way in the order of measured speeds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from pathlib import Path

from analysis.experiments import virtual
from analysis.experiments.command import Ended, rounds_s, run
from analysis.experiments.stragglers import write
from testbed.scenario.matrix import Combination, cells, filled, overrides

SCENARIO = """
version: 1
name: cells
seed: 1
topology:
  data_centers:
    - {name: hub, central: true, workers: 1, global_servers: 2}
    - {name: east, workers: 2}
    - {name: west, workers: 1}
  links:
    - {between: [hub, east], rate: 20 Mbit/s, delay: 10 ms}
    - {between: [hub, west], rate: 20 Mbit/s, delay: 15 ms}
    - {between: [east, west], rate: 20 Mbit/s, delay: 5 ms}
training: {model: {kind: mlp, hidden: 64}, data: digits, batch: 16, rounds: 5, evaluate_every: 5}
device: {pace: paced, step_time: 30 ms}
optimizer: {kind: sgd, learning_rate: 0.05}
"""
LIMIT_S = 120.0


def drawn(count: int, seed: int) -> list[Combination]:
    """Cells that work, each in a full combination."""
    rng = random.Random(seed)
    chosen = rng.sample([cell for cell in cells() if cell.refused is None], count)
    return [filled(cell.combination, rng) for cell in chosen]


def comparable(combination: Combination) -> bool:
    """Whether the bits are the same in every world."""
    waits = combination["sync"] in ("fsa", "bsp", "hfa", "diloco") and combination["paradigm"] != "gossip"
    sums_by_speed = combination["overlay"] in ("tsengine", "netstorm") and combination["codec"] in ("none", "fp16")
    return waits and not sums_by_speed and combination["order"] != "dgt"  # where a block may come after the deadline


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="run directories; finished runs are kept")
    parser.add_argument("--on", default="emulate", choices=("emulate", "local"))
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    scenario = chosen.out / "cells.yaml"
    scenario.write_text(SCENARIO)
    bad = 0
    for number, combination in enumerate(drawn(chosen.cells, chosen.seed), start=1):
        name = "-".join(combination.values())
        texts = overrides(combination)
        real = run(scenario, chosen.on, chosen.out / chosen.on / name, texts, LIMIT_S)
        simulated = virtual.run(SCENARIO, *texts)
        verdict = _verdict(combination, real, simulated)
        bad += verdict.isupper()
        times = [statistics.fmean(seen or [float("nan")]) for seen in (real.rounds_s(), rounds_s(simulated.events))]
        write(f"{number:3} {name:55} {times[0]:8.3f} s {times[1]:8.3f} s  {verdict}")
    write(f"{chosen.cells - bad} of {chosen.cells} combinations ended well {chosen.on}d and simulated")
    return int(bad > 0)


def _verdict(combination: Combination, real: Ended, simulated: virtual.Run) -> str:
    """In capitals if something is wrong."""
    if real.status != "done":
        return real.status.upper()
    if not comparable(combination):
        return "ended well"
    hashes = {event["parameters_sha256"] for event in simulated.of("final") if event["role"] == "worker"}
    return "the same bits" if {real.result["parameters_sha256"]} == hashes else "OTHER BITS"


if __name__ == "__main__":
    sys.exit(main())
