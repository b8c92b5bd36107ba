"""A model of statistical efficiency, fitted to simulated runs with real mathematics, and tried on larger ones.

    python -m analysis.experiments.extrapolation OUT [--seeds 3]

A perceptron on the digits, by SGD of one learning rate on mean gradients (servers add them up, so that the optimizer
gets a share of it): the gradient's batch, the number of data centres that update without waiting for each other
(MixedSync: an update is stale by the others'), and local steps between two averages (HFA). Counted are updates of the
global model until an evaluation reaches the target. Runs beyond the range of those that are fitted are made as well and
left out: what the fit says of them, and how wrong it is, is what extrapolating with it is worth. OUT gets
extrapolation.csv and extrapolation.png; what has been computed there is kept.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.efficiency import Efficiency, Observed, fit
from analysis.experiments.stragglers import write
from analysis.experiments.virtual import kept, run
from analysis.figures import panels

TARGET = 0.9
SCENARIO = """
version: 1
name: extrapolation
seed: 1
run: {on: simulate}
topology:
  generator: {kind: star, data_centers: 2, workers: 1}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training: {model: {kind: mlp, hidden: 32}, data: digits, batch: 16, rounds: 600, evaluate_every: 1,
           target_accuracy: 0.9}
device: {step_time: 10 ms}
"""
RATE = 0.2  # of learning, for the mean gradient of an update
MARKS = {"batch": "o", "staleness": "s", "local steps": "^"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A run to make: ``sites`` data centres of one worker each. ``beyond``: outside of what is fitted."""

    sites: int
    batch: int
    stale: bool = False
    local_steps: int = 1
    beyond: bool = False

    @property
    def family(self) -> str:
        """What is varied."""
        return "staleness" if self.stale else "local steps" if self.local_steps > 1 else "batch"

    @property
    def settings(self) -> tuple[str, ...]:
        """What it changes in the scenario."""
        changed = [f"topology.generator.data_centers={self.sites}", f"training.batch={self.batch}"]
        if self.stale:
            changed.append("sync={tier1: fsa, tier2: mixedsync}")
        if self.local_steps > 1:
            changed.append(f"sync={{kind: hfa, k1: {self.local_steps}, k2: 1}}")
        summed = 1 if self.stale or self.local_steps > 1 else self.sites
        at = "worker" if self.local_steps > 1 else "global"
        return (*changed, f"optimizer={{kind: sgd, learning_rate: {RATE / summed}, at: {at}}}")

    def observed(self, updates: float) -> Observed:
        """As the model sees it."""
        batch = self.batch if self.stale else self.batch * self.sites
        return Observed(batch, self.sites - 1.0 if self.stale else 0.0, self.local_steps, updates)


def asked() -> Iterator[Asked]:
    """All runs."""
    for sites, batch in ((2, 4), (2, 8), (2, 16), (4, 16), (4, 32)):
        yield Asked(sites, batch)
    for sites in (2, 4, 6):
        yield Asked(sites, 16, stale=True)
        yield Asked(sites, 64, stale=True)
    for steps in (2, 4, 8):
        yield Asked(2, 16, local_steps=steps)
        yield Asked(4, 32, local_steps=steps)
    yield Asked(8, 64, beyond=True)
    yield Asked(9, 64, stale=True, beyond=True)
    yield Asked(4, 32, local_steps=16, beyond=True)


def measure(wanted: Asked, seed: int) -> dict[str, float]:
    """Updates until the target; infinite where it was not reached."""
    made = run(SCENARIO, *wanted.settings, f"seed={seed}")
    reached_s = made.time_to(TARGET)
    if reached_s is None:
        return {"updates": math.inf}
    return {"updates": max(1, sum(event["key"] == 0 and event["t"] <= reached_s for event in made.of("update")))}


def row(wanted: Asked, updates: list[float], fitted: Efficiency) -> dict[str, object]:
    """What was asked, what came of it (geometric mean of the seeds), and what the fit says."""
    mean = statistics.geometric_mean(updates)
    point = wanted.observed(mean)
    guess = fitted.predict(point.batch, point.staleness, point.local_steps)
    said = {"family": wanted.family, "beyond": wanted.beyond, "runs": len(updates), **asdict(point)}
    return said | {"fitted": guess.rounds, "low": guess.low, "high": guess.high, "error": guess.rounds / mean - 1}


def draw(rows: pd.DataFrame, residual: float) -> Figure:
    """Fitted over counted updates, with the residual as a band; hollow: left out of the fit, and beyond its range."""
    with panels.style():
        figure = Figure(figsize=(4.6, 4.0), layout="constrained")
        axes = figure.subplots()
        ends = [
            0.6 * min(rows["rounds"].min(), rows["fitted"].min()),
            1.6 * max(rows["rounds"].max(), rows["fitted"].max()),
        ]
        axes.plot(ends, ends, color=panels.MUTED, linewidth=0.9)
        factor = math.exp(residual)
        axes.fill_between(ends, [end / factor for end in ends], [end * factor for end in ends], color=panels.MUTED,
                          alpha=0.15, linewidth=0, label=f"residual, {factor - 1:.0%}")  # fmt: skip
        for number, (family, mark) in enumerate(MARKS.items()):
            for beyond, mine in rows[rows["family"] == family].groupby("beyond"):
                axes.plot(mine["rounds"], mine["fitted"], linestyle="", marker=mark, color=f"C{number}",
                          markerfacecolor="none" if beyond else f"C{number}",
                          label=f"{family}, beyond the fit" if beyond else family)  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel("updates to 90 % accuracy, counted in runs")
        axes.set_ylabel("the same, by the fitted model (no measurement)")
        axes.legend()
        return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    found: dict[Asked, list[float]] = {}
    for wanted in asked():
        place = chosen.out / f"{wanted.family.replace(' ', '-')}-{wanted.sites}-{wanted.batch}-{wanted.local_steps}"
        seeds = range(1, chosen.seeds + 1)
        seen = [kept(place.with_name(f"{place.name}-{seed}.json"), measure, wanted, seed)["updates"] for seed in seeds]
        write(f"{wanted}: {seen} updates")
        if all(math.isfinite(each) for each in seen):
            found[wanted] = seen
        else:
            write("  left out: the target was not always reached")
    fitted = fit([wanted.observed(each) for wanted, seen in found.items() if not wanted.beyond for each in seen])
    rows = pd.DataFrame([row(wanted, seen, fitted) for wanted, seen in found.items()])
    rows.to_csv(chosen.out / "extrapolation.csv", index=False)
    draw(rows, fitted.residual).savefig(chosen.out / "extrapolation.png")
    write(str(fitted))
    for each in rows[rows["beyond"]].to_dict("records"):
        guess = fitted.predict(each["batch"], each["staleness"], each["local_steps"])
        write(f"beyond the fit, {each['family']}: {guess}; counted {each['rounds']:.1f} ({each['error']:+.0%})")


if __name__ == "__main__":
    main()
