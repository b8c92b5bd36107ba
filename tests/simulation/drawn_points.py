"""Compare drawn scenarios, each with a drawn technique, simulated packet by packet and exact: ten rounds of each.

``python -m tests.simulation.drawn_points --points 48 --seed 141`` takes about half an hour of a core, and needs the
kernel of ``testbed exact build``. It prints a line for each point, and the deviations by regime
(``testbed.simulation.prediction_error``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import testbed
from analysis.benchmarks.drawn_scenarios import draw
from testbed.errors import Diverged
from testbed.plan.model import from_json
from testbed.results import tables
from testbed.results.summary import read_result
from testbed.scenario.sweep import read_techniques
from testbed.simulation.prediction_error import contested_links, regime_of

TECHNIQUES = Path(__file__).parents[2] / "scenarios" / "large" / "techniques.yaml"
ROUNDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.drawn_points", description=__doc__)
    parser.add_argument("--points", type=int, default=48, help="how many points (default 48)")
    parser.add_argument("--seed", type=int, default=141, help="of the draw (default 141)")
    options = parser.parse_args()
    techniques = read_techniques(TECHNIQUES)
    names = sorted(techniques)
    Random(options.seed).shuffle(names)
    found: dict[str, list[float]] = {}
    for number in range(options.points):
        name = names[number % len(names)]
        with tempfile.TemporaryDirectory() as folder:
            regime, exact_s, simulated_s = compare(options.seed, number, techniques[name], Path(folder))
        deviation = simulated_s / exact_s - 1
        found.setdefault(regime, []).append(abs(deviation))
        line = f"{number} {name}: exact {exact_s * 1e3:.1f} ms, simulated {simulated_s * 1e3:.1f} ms"
        sys.stdout.write(f"{line}, {deviation:+.2%}, {regime}\n")
        sys.stdout.flush()
    for regime, deviations in found.items():
        deviations.sort()
        median = deviations[len(deviations) // 2]
        within_95 = deviations[int(0.95 * (len(deviations) - 1) + 0.5)]
        sys.stdout.write(f"{regime}: {len(deviations)} points, median {median:.2%}, 95 % within {within_95:.1%}\n")


def compare(seed: int, number: int, technique: Mapping[str, str], folder: Path) -> tuple[str, float, float]:
    """Return the regime, and the mean round of the exact and of the simulated run in seconds."""
    drawn = draw(seed, number)
    settings = [f"{path}={value}" for path, value in technique.items()]
    settings += [f"training.rounds={ROUNDS}", "simulation.network=packets"]
    if drawn.read((), None).device.variation == 0:
        settings.append("device.variation=1 %")  # else the order in which processes were started decides
    means_s = {}
    for on in ("exact", "simulate"):
        scenario = drawn.read(settings, on)
        out = folder / on
        with suppress(Diverged):  # a run that has learned nothing has rounds, too
            testbed.run(scenario, out=out, progress=False)
        means_s[on] = float(read_result(out / "result.json")["round_time_s"])
    plan = from_json((out / "plan.json").read_bytes())
    regime = regime_of(plan, is_contested=bool(contested_links(plan, tables.read(out))))
    return regime, means_s["exact"], means_s["simulate"]


if __name__ == "__main__":
    main()
