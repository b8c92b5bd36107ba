"""Make the shipped traces again: all are synthetic, from seeded models. ``topologies/data`` holds what this makes.

They have the levels, steps and swings of what they are called after, and are no measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from topologies.traces.model import Trace
from topologies.traces.synthetic import SYNTHETIC, make
from topologies.traces.write import to_text

LOW_MBIT, HIGH_MBIT = 20, 155
STEP_S, DRAWS, SEED = 180, 40, 1
NETSTORM_HEADER = """\
# Rates of netstorm9: U{20..155} Mbit/s for each directed link every 180 s (the rule of NetStorm's scripts).
# Drawn by tests/topologies/made.py with seed 1; the numbers are our own. Licence: CC0.
time_s,src,dst,rate_mbit_s
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """``base`` times the factors of a model."""

    about: str
    what: str
    base: float
    model: str
    options: Mapping[str, Any]


RECIPES: Mapping[str, Recipe] = {
    "lte-drive": Recipe(
        "a phone in a car: 0.3 to 40 Mbit/s, every half second",
        "rate",
        10e6,
        "walk",
        {"low": 0.03, "high": 4.0, "spread": 0.18, "step": 0.5, "length": 600.0, "seed": 11},
    ),
    "wan-evening": Recipe(
        "a shared 100 Mbit/s path whose free rate halves in the evening: one day in minutes",
        "rate",
        100e6,
        "sine",
        {"low": 0.45, "high": 1.0, "period": 86_400.0, "step": 600.0},
    ),
    "cloud-pair": Recipe(
        "one TCP stream between two clouds, 210 Mbit/s with random changes of some per cent, every second",
        "rate",
        210e6,
        "walk",
        {"low": 0.8, "high": 1.2, "spread": 0.03, "step": 1.0, "length": 600.0, "seed": 12},
    ),
    "cross-traffic": Recipe(
        "100 Mbit/s, of which bulk transfers of others take nine tenths at random times",
        "rate",
        100e6,
        "markov",
        {"low": 0.1, "high": 1.0, "mean_high": 20.0, "mean_low": 5.0, "length": 600.0, "seed": 13},
    ),
    "staircase": Recipe(
        "100, 50, 20, 5, 20, 50 Mbit/s for 30 s each: a test of adaptation",
        "rate",
        100e6,
        "levels",
        {"levels": "1 0.5 0.2 0.05 0.2 0.5", "every": 30.0},
    ),
    "reroute": Recipe(
        "a path whose one-way delay goes from 40 to 70 ms and back as routes change",
        "delay",
        0.04,
        "markov",
        {"low": 1.0, "high": 1.75, "mean_high": 15.0, "mean_low": 45.0, "length": 600.0, "seed": 14},
    ),
    "loss-spells": Recipe(
        "spells of 2 % loss in a path that loses 0.01 %",
        "loss",
        0.02,
        "markov",
        {"low": 0.005, "high": 1.0, "mean_high": 4.0, "mean_low": 40.0, "length": 600.0, "seed": 15},
    ),
}


def library_trace(name: str) -> str:
    """Return the text of ``data/traces/<name>.csv``."""
    recipe = RECIPES[name]
    options = SYNTHETIC[recipe.model](**recipe.options)
    steps, period_s = make(recipe.model, options, "")
    digits = 1 if recipe.what == "rate" else 9
    values = tuple(round(factor * recipe.base, digits) for _, factor in steps)
    trace = Trace(tuple(time for time, _ in steps), values, recipe.what, period_s, period_s)
    options_text = ", ".join(f"{key} {value}" for key, value in asdict(options).items())
    return to_text(
        trace,
        "csv",
        (
            f"SYNTHETIC: {recipe.about}.",
            f"Model: {recipe.model}, {options_text}; times {recipe.base:g}.",
            "Made by tests/topologies/made.py; no measurement. Licence: CC0.",
        ),
    )


def netstorm_rates(links: Iterable[tuple[str, str]], seed: int = SEED) -> str:
    """Return the text of ``data/netstorm9.csv`` for these directed links, in their order."""
    links, lines = list(links), []
    random = Random(f"netstorm9/{seed}")
    for draw in range(DRAWS):
        for source, target in links:
            lines.append(f"{draw * STEP_S},{source},{target},{random.randint(LOW_MBIT, HIGH_MBIT)}\n")
    return NETSTORM_HEADER + "".join(lines)
