"""Random cells of the composition matrix, in real processes and in virtual time: both end, and with the same bits.

A cell is a pair of values of two axes; the other axes get values by chance, such that nothing is refused.
"""

from __future__ import annotations

import random
from functools import cache

from analysis.studies.claims import Claims
from analysis.studies.study import Panel, Results, Study, StudySweep
from analysis.studies.worlds import same_bits
from testbed.codec.options import CODECS
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.matrix import Combination, cells, filled, overrides
from testbed.scenario.paradigms import PARADIGMS

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
COUNT, SEED = 20, 1


@cache
def drawn() -> dict[str, Combination]:
    """Cells that work, each in a full combination, by name."""
    rng = random.Random(SEED)
    chosen = rng.sample([cell for cell in cells() if cell.refused is None], COUNT)
    combinations = [filled(cell.combination, rng) for cell in chosen]
    return {"-".join(each.values()): each for each in combinations}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    chosen = list(drawn().items())[: 3 if quick else None]
    return (StudySweep("cells", {name: dict(text.split("=", 1) for text in overrides(each)) for name, each in chosen}),)


def comparable(combination: Combination) -> bool:
    """Whether the bits cannot depend on times: all wait for all, and nothing is summed in the order of speeds."""
    sync, overlay = SYNC[combination["sync"]], OVERLAYS[combination["overlay"]]
    waits = sync.waits and not sync.assigns_steps and PARADIGMS[combination["paradigm"]].global_sum
    sums_by_speed = overlay.adapts and CODECS[combination["codec"]].dense
    return waits and not sums_by_speed and not ORDERS[combination["order"]].best_effort


def claims(found: Results) -> Claims:
    yield from (same_bits(found, name) for name in found.runs["variant"].unique() if comparable(drawn()[name]))


STUDY = Study(
    title="Random combinations of techniques, emulated and simulated", source="the composition matrix",
    scenario=SCENARIO, sweeps=sweeps, on=("emulate", "simulate"), claims=claims,
    panels=(Panel("", "round_time_s", "variant", kind="bar", series="back_end", y_label="time of a round (s)"),),
    size_in=(11.0, 5.0),
)  # fmt: skip
