"""A model of statistical efficiency, fitted to simulated runs with real mathematics, and tried on larger ones.

A perceptron on the digits, by SGD of one learning rate on mean gradients (servers add them up, so that the optimizer
gets a share of it): the gradient's batch, the number of data centres that update without waiting for each other
(MixedSync: an update is stale by the others'), and local steps between two averages (HFA). Counted are updates of the
global model until an evaluation reaches the target. Runs beyond the range of those that are fitted are made as well and
left out: what the fit says of them, and how wrong it is, is what extrapolating with it is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from analysis.efficiency import Efficiency, Observed, fit
from analysis.figures.panels import MUTED
from analysis.identity import series
from analysis.studies.claims import Claims, exactly, unresolved
from analysis.studies.columns import updates_until_target
from analysis.studies.study import Panel, Results, Study, StudySweep

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


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """``sites`` data centres of one worker each; ``stale``: they do not wait for each other."""

    sites: int
    batch: int
    stale: bool = False
    local_steps: int = 1

    @property
    def family(self) -> str:
        """What is varied."""
        return "staleness" if self.stale else "local steps" if self.local_steps > 1 else "batch"

    @property
    def name(self) -> str:
        return f"{self.family}: {self.sites} sites, batch {self.batch}, {self.local_steps} steps"

    @property
    def settings(self) -> dict[str, str]:
        """Changes to the scenario."""
        changed = {"topology.generator.data_centers": str(self.sites), "training.batch": str(self.batch)}
        if self.stale:
            changed["sync"] = "{tier1: fsa, tier2: mixedsync}"
        if self.local_steps > 1:
            changed["sync"] = f"{{kind: hfa, k1: {self.local_steps}, k2: 1}}"
        summed = 1 if self.stale or self.local_steps > 1 else self.sites
        at = "worker" if self.local_steps > 1 else "global"
        return {**changed, "optimizer": f"{{kind: sgd, learning_rate: {RATE / summed}, at: {at}}}"}

    def observed(self, updates: float) -> Observed:
        batch = self.batch if self.stale else self.batch * self.sites
        return Observed(batch, self.sites - 1.0 if self.stale else 0.0, self.local_steps, updates)


FITTED = (
    *(TrainingSetup(sites, batch) for sites, batch in ((2, 4), (2, 8), (2, 16), (4, 16), (4, 32))),
    *(TrainingSetup(sites, batch, stale=True) for sites in (2, 4, 6) for batch in (16, 64)),
    *(TrainingSetup(sites, 8 * sites, local_steps=steps) for steps in (2, 4, 8) for sites in (2, 4)),
)
BEYOND = (TrainingSetup(8, 64), TrainingSetup(9, 64, stale=True), TrainingSetup(4, 32, local_steps=16))
SETUPS = {each.name: each for each in (*FITTED, *BEYOND)}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    variants = {name: each.settings for name, each in SETUPS.items() if not quick or each in FITTED}
    return (StudySweep("setups", variants, seeds=1 if quick else 3),)


def fitted(runs: pd.DataFrame) -> Efficiency:
    """Return the model of all setups of ``FITTED`` whose every seed reached the target."""
    whole = runs.groupby("variant").filter(lambda group: group["updates"].notna().all())
    known = [(SETUPS[name], updates) for name, updates in zip(whole["variant"], whole["updates"], strict=True)]
    return fit([setup.observed(updates) for setup, updates in known if setup in FITTED])


def derive(runs: pd.DataFrame) -> pd.DataFrame:
    model = fitted(runs)
    setups = [SETUPS[name] for name in runs["variant"]]
    points = [each.observed(math.nan) for each in setups]
    said = [model.predict(point.batch, point.staleness, point.local_steps) for point in points]
    return runs.assign(
        family=[each.family + (", beyond the fit" if each in BEYOND else "") for each in setups],
        fitted=[each.rounds for each in said], low=[each.low for each in said], high=[each.high for each in said],
        residual=model.residual,
    )  # fmt: skip


def claims(found: Results) -> Claims:
    yield exactly("residual of the fit, each setting left out once, at most 40 %",
                  math.exp(found.mean("residual")) - 1, 0, 0.4)  # fmt: skip
    for each in BEYOND:
        rows = found.rows(variant=each.name)
        claim = f"beyond the fit, {each.name}: error of the prediction at most 35 %"
        if missing := int(rows["updates"].isna().sum()):
            yield unresolved(claim, f"{missing} of {len(rows)} seeds did not reach the target")
        elif len(rows):
            error = float(rows["fitted"].iloc[0] / math.exp(rows["updates"].map(math.log).mean()) - 1)
            yield exactly(claim, error, -0.35, 0.35)


def _diagonal(axes: Axes, found: Results) -> None:
    low, high = 0.6 * found.runs[["updates", "fitted"]].min().min(), 1.6 * found.runs[["updates", "fitted"]].max().max()
    factor = math.exp(found.mean("residual"))
    axes.plot([low, high], [low, high], color=MUTED, linewidth=0.9)
    axes.fill_between([low, high], [low / factor, high / factor], [low * factor, high * factor], color=MUTED,
                      alpha=0.15, linewidth=0, label=f"residual, {factor - 1:.0%}")  # fmt: skip


_FAMILIES = [
    f"{family}{beyond}" for family in ("batch", "staleness", "local steps") for beyond in ("", ", beyond the fit")
]
STUDY = Study(
    title="How far a fitted model of rounds to accuracy reaches",
    source="McCandlish et al., An empirical model of large-batch training, 2018",
    scenario=SCENARIO, sweeps=sweeps, columns={"updates": updates_until_target}, derive=derive, claims=claims,
    looks={family: series(number, family) for number, family in enumerate(_FAMILIES)},
    panels=(Panel("", "fitted", "updates", kind="points", series="family", log="xy", draw=_diagonal,
                  x_label="updates to 90 % accuracy, counted in runs",
                  y_label="the same, by the fitted model (no measurement)"),),
    size_in=(4.6, 4.4),
)  # fmt: skip
