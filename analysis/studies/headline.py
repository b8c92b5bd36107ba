"""Time to the same accuracy for stacks of GeoMX techniques and a flat parameter server, by the rate of the WAN.

GeoMX claims a factor of 20, without data. As in its demo, two data centres have workers (four each), and a third one
has only servers. The two models have half the size of the demo's and almost twice its size, and learn real digits. The
comparison is fair: of the same five learning rates, every stack uses its fastest one. These were searched with one
seed, simulated at 20 Mbit/s, because what a synchronous stack learns does not depend on the network or back end. Every
stack is evaluated whenever there is a new global model: in every round, but with HFA in every eighth, because each data
centre has a model of its own between two averages over the WAN.

The decisive quantity is the ratio of communication to computation in the flat server's rounds. In GeoMX' demo it is 78
(0.715 MB, two parties of two workers, 20 Mbit/s, 50 ms, 30 ms a step). Here it is 78 at 5 Mbit/s with the small model,
and twice that at 10 Mbit/s with the large one.

``--on exact --seeds 1`` makes the runs in real processes with the kernel's TCP, whatever else the machine does.
"""

from __future__ import annotations

from typing import Any

from analysis.confidence import A_DIFFERENCE
from analysis.identity import Identity
from analysis.studies.columns import mbps, setting, sooner_than
from analysis.studies.study import Case, Expected, Panel, Study

STEP_S = 0.05
SCENARIO = """
version: 1
name: headline
seed: 1
topology:
  data_centers:
    - {name: central, central: true, workers: 0}
    - {name: east, workers: 4}
    - {name: west, workers: 4}
  links:
    - {between: [central, east], rate: 20 Mbit/s, delay: 25 ms, queue: 1 MB}
    - {between: [central, west], rate: 20 Mbit/s, delay: 40 ms, queue: 1 MB}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training:
  {model: {kind: mlp, hidden: 1000}, data: digits, batch: 32, rounds: 300, target_accuracy: 95 %, evaluate_every: 1}
device: {pace: paced, step_time: 50 ms}
optimizer: {kind: adam, learning_rate: 0.003}
timeouts: {dead_after: 10 min}
"""
LINK_RATE = "links[*].rate"
HIDDEN = "training.model.hidden"
FLAT = "flat PS"
BEST = "HFA + FP16"
_HFA = {
    "sync": "{kind: hfa, k1: 5, k2: 8}",
    "optimizer": "{kind: adam, learning_rate: 0.003, at: worker}",
    "training.evaluate_every": "8",
}
STACKS = {
    FLAT: {"paradigm": "ps"},
    "HiPS": {},
    "HiPS + FP16": {"codec": "fp16"},
    "HFA": _HFA,
    BEST: {**_HFA, "codec": "fp16"},
}
SMALL = "0.3 MB"
LARGE = "1.2 MB"
RATES = {LINK_RATE: ("5 Mbit/s", "10 Mbit/s", "20 Mbit/s", "50 Mbit/s", "100 Mbit/s")}
MODELS = {
    SMALL: Case(
        {HIDDEN: "1000"},
        RATES,
        learning_rates={FLAT: "0.03", "HiPS": "0.03", "HiPS + FP16": "0.01", "HFA": "0.01", BEST: "0.01"},
    ),
    LARGE: Case(
        {HIDDEN: "4000"},
        RATES,
        {each: STACKS[each] for each in (FLAT, BEST)},
        learning_rates={FLAT: "0.003", BEST: "0.003"},
    ),
}


def _times_sooner(times: float, model: str, rate_mbps: float, ratio: float) -> tuple[Expected, Expected]:
    """Return two claims: the ratio of communication to computation is as stated within a quarter, and the speed-up."""
    at = {"rate_mbps": rate_mbps}
    low_s, high_s = (STEP_S * (1 + ratio * factor) for factor in (1 / 1.25, 1.25))
    told = f"at {rate_mbps:g} Mbit/s communication is {ratio:g} times computation, within a quarter (a round, s)"
    return (
        Expected(told, model, "round_s", low_s, high_s, alone=True, technique=FLAT, at=at),
        Expected(
            f"there {BEST} is at the target {times:g} times sooner than a flat server",
            model,
            "time_to_target_s",
            times,
            at=at,
        ),
    )


def _ahead(part: str, rate_mbps: float) -> Expected:
    claim = f"at {rate_mbps:g} Mbit/s {BEST} is ahead of {part}"
    return Expected(claim, SMALL, "time_to_target_s", 1 + A_DIFFERENCE, twin=part, at={"rate_mbps": rate_mbps})


def _map(title: str, **more: Any) -> Panel:
    return Panel(
        title,
        "times_sooner",
        "rate_mbps",
        log="xy",
        x_label="rate of the WAN links (Mbit/s)",
        y_label="time of flat PS / time of the stack",
        levels={20.0: "GeoMX's claim"},
        **more,
    )


STUDY = Study(
    title="Time to the same accuracy against a flat parameter server",
    source="GeoMX README: '20x', published without rate and data",
    scenario=SCENARIO,
    variants=STACKS,
    cases=MODELS,
    expected=(
        *_times_sooner(20, SMALL, 5, 78),
        *_times_sooner(50, LARGE, 10, 156),
        *(_ahead(part, mbps(rate)) for rate in RATES[LINK_RATE] for part in ("HiPS", "HiPS + FP16", "HFA")),
    ),
    rates=("0.001", "0.003", "0.01", "0.03", "0.1"),
    columns={"rate_mbps": setting(LINK_RATE, mbps)},
    derive=sooner_than(FLAT, "rate_mbps"),
    looks={
        stack: Identity(stack, colour, "s")
        for stack, colour in zip(STACKS, ("#000000", "#999999", "#E69F00", "#009E73", "#0072B2"), strict=True)
    },
    panels=(
        _map(f"Model of {SMALL}", where={"sweep": SMALL}, width=1.2),
        _map(f"{BEST}, by model", where={"variant": BEST, "sweep": (SMALL, LARGE)}, series="sweep", legend=True),
        Panel(
            f"What each part brings, {SMALL}, 5 Mbit/s",
            "times_sooner",
            kind="bar",
            where={"sweep": SMALL, "rate_mbps": 5.0},
            y_label="times sooner than a flat server",
        ),
    ),
    size_in=(11.5, 4.0),
)
