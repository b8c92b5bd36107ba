"""Scenarios drawn at random, on which advice is checked: networks, devices, models and goals that differ widely.

3 to 16 data centres; links on which sending the model takes as long as 0.2 to 8 training steps, the rates of some
follow shipped traces; models of 38 kB to 5.1 MB; devices of unlike speed; time, bytes or money to an accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from analysis.advise.goal import BYTES, MONEY, TIME
from testbed.scenario import Scenario, loads
from testbed.scenario.reading.section import as_yaml

MODELS = (  # kind and options, with the bytes of its parameters on 8×8 digits
    ({"kind": "mlp", "hidden": 128, "layers": 1}, 38_000),
    ({"kind": "mlp", "hidden": 128, "layers": 2}, 104_000),
    ({"kind": "cnn"}, 322_000),
    ({"kind": "mlp", "hidden": 200, "layers": 4}, 542_000),
    ({"kind": "mlp", "hidden": 384, "layers": 3}, 1_300_000),
    ({"kind": "mlp", "hidden": 640, "layers": 4}, 5_100_000),
)
TRACES: tuple[dict[str, Any], ...] = (
    {"use": "cloud-pair", "speed": 10, "repeat_after": "60 s"},
    {"use": "wan-evening", "speed": 2160, "repeat_after": "40 s"},
    {"use": "cross-traffic", "repeat_after": "100 s"},
    {"use": "staircase", "speed": 4, "repeat_after": "45 s"},
)
_TRACE_BPS = (210e6, 100e6, 100e6, 100e6)  # the highest rate of each
ACCURACIES = (0.85, 0.9, 0.93)
LEAST = (TIME, MONEY, BYTES)


@dataclass(frozen=True, slots=True)
class DrawnScenario:
    """A scenario, and the question about it. ``prices``: the content of a file of prices; empty unless cost counts."""

    text: str
    accuracy: float
    least: str
    prices: str = ""

    @property
    def goal(self) -> str:
        return f"accuracy={self.accuracy:g}"

    def read(self, settings: Any, on: str | None) -> Scenario:
        return loads(self.text, "drawn.yaml", settings, on=on)


def draw(seed: int, number: int) -> DrawnScenario:
    """Return scenario ``number`` of those that ``seed`` draws. It does not depend on which others are drawn."""
    rng = Random(f"{seed}/{number}")
    sites = rng.choice((3, 3, 4, 5, 6, 8, 11, 16))
    models = MODELS if sites <= 6 else MODELS[:4]
    model, size_bytes = rng.choice(models)
    step_s = rng.choice((0.02, 0.05, 0.1, 0.3))
    travel_steps = 0.2 * 40 ** rng.random()
    rate_bps = max(size_bytes * 8 / (travel_steps * step_s), 1e6)
    names = [f"dc{index}" for index in range(sites)]
    document: dict[str, Any] = {
        "version": 1,
        "name": f"drawn-{seed}-{number}",
        "seed": 1,
        "run": {"on": "simulate"},
        "topology": {
            "data_centers": [_site(rng, name, index) for index, name in enumerate(names)],
            "links": list(_links(rng, names, rate_bps)),
        },
        "training": {
            "model": model,
            "data": "digits",
            "batch": rng.choice((16, 32)),
            "rounds": 120,
            "evaluate_every": 5,
        },
        "device": {"step_time": f"{1000 * step_s:g} ms", "variation": rng.choice(("0 %", "5 %", "10 %"))},
        "optimizer": {"kind": "adam", "learning_rate": rng.choice((0.001, 0.002, 0.004))},
    }
    accuracy = rng.choice(ACCURACIES)
    least = rng.choice(LEAST)
    prices = _prices(rng, names, size_bytes, (1 + travel_steps) * step_s) if least == MONEY else ""
    return DrawnScenario(as_yaml(document), accuracy, least, prices)


def _prices(rng: Random, names: list[str], size_bytes: int, round_s: float) -> str:
    """Return prices as CSV, such that transfers and machines both contribute to the cost."""
    usd_per_gb = [rng.choice((0.02, 0.05, 0.09, 0.14)) for _ in names]
    round_usd = 2 * sum(usd_per_gb[1:]) * size_bytes / 1e9
    share_of_machines = rng.choice((0.2, 0.5, 0.8))
    usd_per_hour = share_of_machines / (1 - share_of_machines) * round_usd / round_s * 3600 / len(names)
    rows = [f"{name},{each:g},{usd_per_hour:.4g}" for name, each in zip(names, usd_per_gb, strict=True)]
    return "\n".join(["data_center,usd_per_gb,usd_per_hour", *rows]) + "\n"


def _site(rng: Random, name: str, index: int) -> dict[str, Any]:
    site: dict[str, Any] = {"name": name, "workers": rng.choice((1, 1, 2))}
    if index == 0:
        site["central"] = True
    if rng.random() < 0.25:
        site["device"] = {"speed": rng.choice((0.25, 0.5, 0.75))}
    return site


def _links(rng: Random, names: list[str], rate_bps: float) -> Any:
    """Yield the links: all pairs of up to 6 data centres; for more, a star, and a chain through its outer ones."""
    count = len(names)
    pairs = [(0, other) for other in range(1, count)]
    pairs += [
        (one, other) for one in range(1, count) for other in range(one + 1, count) if count <= 6 or other - one == 1
    ]
    traced = rng.random() < 0.5
    for one, other in pairs:
        mbit_s = rate_bps * rng.uniform(0.4, 1.6) / 1e6
        link: dict[str, Any] = {
            "between": [names[one], names[other]],
            "rate": f"{mbit_s:.4g} Mbit/s",
            "delay": f"{rng.choice((2, 10, 25, 50, 100)) * rng.uniform(0.7, 1.3):.3g} ms",
        }
        if traced and rng.random() < 0.5:
            place = rng.randrange(len(TRACES))
            link["rate_trace"] = {**TRACES[place], "scale": f"{mbit_s * 1e6 / _TRACE_BPS[place]:.6f}"}
        yield link
