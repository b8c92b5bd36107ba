"""P3: the gain of priorities over FIFO, by the rate of the network and by the size of slices."""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, decided, exactly
from analysis.studies.columns import mbps, setting
from analysis.studies.results import Results, against
from analysis.studies.study import Case, Panel, Study
from testbed.units import parse_size

RATE = "links[*].rate"
MODEL = "training.model.name"
SLICE = "order.slice"
STEP_S = 1.0
MODEL_BYTES = {"alexnet": 4 * 61_100_840, "resnet50": 4 * 25_557_032}
RATES = ("0.02", "0.05", "0.1", "0.2", "0.5", "1", "1.5", "2", "3", "5", "10", "20")
SLICES = ("100 KB", "250 KB", "500 KB", "1 MB", "2 MB", "4 MB", "16 MB", "64 MB", "256 MB")
P3 = {"order": "{kind: p3, slice: 1 MB}"}


def _gains(runs: pd.DataFrame) -> pd.DataFrame:
    transfer_s = 8 * runs["model"].map(MODEL_BYTES) / (runs["rate_gbps"] * 1e9)
    runs = runs.assign(speed=STEP_S / runs["round_time_s"], bound_s=transfer_s.clip(lower=STEP_S))
    base = against(runs, "speed", ["model", "rate_gbps"], sweep="bandwidth", variant="FIFO")
    return runs.assign(gain=runs["speed"] / base - 1)


def claims(found: Results) -> Claims:
    rows = found.rows(sweep="bandwidth")
    off = float((rows["bound_s"] / rows["round_time_s"]).max())
    yield exactly("no iteration is shorter than computing or one way of the model", off, 0, 1, " of its length")
    most = {}
    for model in MODEL_BYTES:
        table = rows[rows["model"] == model].pivot_table(index="rate_gbps", columns="variant", values="speed")
        worst = float(min((table["P3"] / table["slicing"]).min(), (table["slicing"] / table["FIFO"]).min()))
        yield exactly(f"{model}: P3 >= slicing >= FIFO at every rate, 1 % slack", worst, 0.99, unit=" at worst")
        gains = table["P3"] / table["FIFO"] - 1
        most[model] = float(gains.max())
        claim = f"{model}: the largest gain of P3 over FIFO is 10 to 66 % (at {gains.idxmax():g} Gbit/s)"
        yield exactly(claim, most[model], 0.10, 0.66)
        for end, rate in (("slowest", gains.index.min()), ("fastest", gains.index.max())):
            yield exactly(f"{model}: at most 3 % at the {end} rate, {rate:g} Gbit/s", float(gains[rate]), -0.03, 0.03)
    yield exactly("the VGG-like model gains more than the ResNet", most["alexnet"] / most["resnet50"], 1, unit=" times")
    speed = found.rows(sweep="slice").set_index("slice_bytes")["speed"].sort_index()
    measured = ", ".join(f"{size / 1e6:g} MB {value:.4g}" for size, value in speed.items())
    inside = bool(speed.index[0] < speed.idxmax() < speed.index[-1])
    claim = "the best slice is neither the smallest nor the largest"
    yield decided(claim, measured, inside, "the best here lies at an end of the range")


def _speed(model: str, title: str) -> Panel:
    return Panel(
        title,
        "speed",
        "rate_gbps",
        where={"sweep": "bandwidth", "model": model},
        log="x",
        y_range=(0, 1.05),
        x_label="rate of every link (Gbit/s)",
        y_label="rounds/s (1: no communication)",
    )


STUDY = Study(
    title="Priority-based parameter propagation against bandwidth",
    source="Jayarajan et al., MLSys 2019 (P3)",
    scenario="papers/p3-bandwidth.yaml",
    variants={
        "FIFO": {"order": "{kind: fifo, overlap: layers, slice: 4 MB}"},  # MXNet's slices have a million elements
        "slicing": {"order": "{kind: fifo, overlap: layers, slice: 1 MB}"},
        "P3": P3,
    },
    cases={
        "bandwidth": Case({}, {MODEL: tuple(MODEL_BYTES), RATE: tuple(f"{rate} Gbit/s" for rate in RATES)}, seeds=1),
        "slice": Case({MODEL: "alexnet", RATE: "2 Gbit/s"}, {SLICE: SLICES}, variants={"P3": P3}, seeds=1),
    },
    claims=claims,
    derive=_gains,
    columns={
        "model": setting(MODEL, str, "alexnet"),
        "slice_bytes": setting(SLICE, parse_size),
        "rate_gbps": setting(RATE, lambda text: mbps(text) / 1e3, "2 Gbit/s"),
    },
    looks={
        "FIFO": Identity("FIFO, cut at 10⁶ elements", "#20242C", "s"),
        "slicing": Identity("slicing", "#E69F00", "^"),
        "P3": look_of("p3"),
        "alexnet": Identity("AlexNet", "#7A5195", "<"),
        "resnet50": Identity("ResNet-50", "#0072B2", "o"),
    },
    panels=(
        _speed("alexnet", "VGG-like: AlexNet, 244 MB"),
        _speed("resnet50", "ResNet-50, 102 MB"),
        Panel(
            "What P3 gains over FIFO",
            "100 * gain",
            "rate_gbps",
            where={"sweep": "bandwidth", "variant": "P3"},
            series="model",
            log="x",
            published="%",
            x_label="rate of every link (Gbit/s)",
            y_label="%",
            y_range=(None, 75),
            legend=True,
        ),
        Panel(
            "AlexNet, 2 Gbit/s",
            "speed",
            "slice_bytes / 1e6",
            where={"sweep": "slice"},
            log="x",
            x_label="largest slice (MB)",
            width=0.8,
        ),
    ),
    size_in=(11.5, 3.6),
)
