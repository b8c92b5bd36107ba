"""P3: how much priorities gain over FIFO, against the rate of the network, and by the size of a slice."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.papers import drawing
from analysis.figures.papers.base import Assertion, PaperFigure, Published, Sample, Study, exactly
from analysis.figures.papers.quantities import rate_mbps, usual
from analysis.identity import Identity, look_of

RATE, MODEL, SLICE = "links[*].rate", "training.model.name", "order.slice"
STEP_S, GOODPUT = 1.0, 1448 / 1514
MODEL_BYTES = {"alexnet": 4 * 61_100_840, "resnet50": 4 * 25_557_032}
TITLES = {"alexnet": "VGG-like: AlexNet, 244 MB", "resnet50": "ResNet-50, 102 MB"}
VARIANTS = {
    "FIFO": {"order": "{kind: fifo, overlap: layers, slice: 4 MB}"},  # MXNet cuts at a million elements
    "slicing": {"order": "{kind: fifo, overlap: layers, slice: 1 MB}"},
    "P3": {"order": "{kind: p3, slice: 1 MB}"},
}
LOOKS = {"FIFO": Identity("FIFO, cut at 10⁶ elements", "#20242C", "s"), "slicing": Identity("slicing", "#E69F00", "^"),
         "P3": look_of("p3")}  # fmt: skip


def studies(quick: bool) -> tuple[Study, ...]:
    rates = (
        ("0.02", "0.5", "1", "2", "20")
        if quick
        else ("0.02", "0.05", "0.1", "0.2", "0.5", "1", "1.5", "2", "3", "5", "10", "20")
    )
    slices = ("250 KB", "1 MB", "4 MB", "64 MB") if quick else ("100 KB", "250 KB", "500 KB", "1 MB", "2 MB", "4 MB",
                                                                "16 MB", "64 MB", "256 MB")  # fmt: skip
    return (
        Study("bandwidth", "p3-bandwidth.yaml", VARIANTS,
              {MODEL: tuple(MODEL_BYTES), RATE: tuple(f"{rate} Gbit/s" for rate in rates)}),
        Study("slice", "p3-bandwidth.yaml", {"P3": {"order": "{kind: p3, slice: 1 MB}", MODEL: "alexnet"}},
              {RATE: ("2 Gbit/s",), SLICE: slices}),
    )  # fmt: skip


def derive(samples: Sequence[Sample]) -> pd.DataFrame:
    from testbed.units import parse_size

    rows = []
    for sample in samples:
        model = sample.settings.get(MODEL, "alexnet")
        row = {**usual(sample), "model": model, "rate_gbps": rate_mbps(sample.settings[RATE]) / 1e3}
        row["speed"] = STEP_S / row["round_time_s"]
        row["bound_s"] = max(STEP_S, 8 * MODEL_BYTES[model] / (row["rate_gbps"] * 1e9))
        row["slice_bytes"] = parse_size(sample.settings[SLICE]) if SLICE in sample.settings else None
        rows.append(row)
    frame = pd.DataFrame(rows)
    bandwidth = frame["study"] == "bandwidth"
    base = frame[bandwidth & (frame["variant"] == "FIFO")].set_index(["model", "rate_gbps"])["speed"]
    places = pd.MultiIndex.from_frame(frame[["model", "rate_gbps"]])
    frame["gain"] = frame["speed"] / base.reindex(places).to_numpy() - 1
    return frame


def draw(figure: Figure, frame: pd.DataFrame, known: Sequence[Published]) -> None:
    *speeds, gain, cut = figure.subplots(1, 4, width_ratios=(1, 1, 1, 0.8))
    rows = frame[frame["study"] == "bandwidth"]
    for axes, (model, title) in zip(speeds, TITLES.items(), strict=True):
        for name, look in LOOKS.items():
            drawing.line(axes, rows[(rows["model"] == model) & (rows["variant"] == name)], "rate_gbps", "speed", look)
        drawing.log_rate(axes, "rate of every link (Gbit/s)")
        axes.set_title(title)
        axes.set_ylim(0, 1.05)
    speeds[0].set_ylabel("rounds/s (1: no communication)")
    looks = {"alexnet": Identity("AlexNet", "#7A5195", "<"), "resnet50": Identity("ResNet-50", "#0072B2", "o")}
    for model, look in looks.items():
        of_model = rows[(rows["model"] == model) & (rows["variant"] == "P3")].assign(
            percent=lambda all_: 100 * all_["gain"]
        )
        drawing.line(gain, of_model, "rate_gbps", "percent", look)
    drawing.log_rate(gain, "rate of every link (Gbit/s)")
    gain.set_title("What P3 gains over FIFO")
    gain.set_ylabel("%")
    for each in known:
        drawing.horizontal(gain, each.y, f"published, at most: {each.series}")
    gain.set_ylim(bottom=min(0.0, gain.get_ylim()[0]), top=max(75.0, gain.get_ylim()[1]))
    gain.legend(loc="upper left", bbox_to_anchor=(0, 0.86))
    slices = frame[frame["study"] == "slice"].assign(megabytes=lambda all_: all_["slice_bytes"] / 1e6)
    drawing.line(cut, slices, "megabytes", "speed", LOOKS["P3"])
    drawing.log_rate(cut, "largest slice (MB)")
    cut.set_title("AlexNet, 2 Gbit/s")
    figure.legend(*speeds[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def check(frame: pd.DataFrame) -> list[Assertion]:
    rows = frame[frame["study"] == "bandwidth"]
    off = float((rows["bound_s"] / rows["round_time_s"]).max())
    found = [exactly("no iteration is shorter than computing or one way of the model", off, 0, 1, " of its length")]
    for model in MODEL_BYTES:
        table = rows[rows["model"] == model].pivot_table(index="rate_gbps", columns="variant", values="speed")
        worst = float(min((table["P3"] / table["slicing"]).min(), (table["slicing"] / table["FIFO"]).min()))
        claim = f"{model}: P3 >= slicing >= FIFO at every rate, 1 % slack"
        found.append(exactly(claim, worst, 0.99, float("inf"), " of the next at worst"))
        gains = table["P3"] / table["FIFO"] - 1
        best = f"{model}: the largest gain of P3 over FIFO is 10 to 66 %"
        found.append(exactly(f"{best} (at {gains.idxmax():g} Gbit/s)", float(gains.max()), 0.10, 0.66))
        for end, rate in (("slowest", gains.index.min()), ("fastest", gains.index.max())):
            claim = f"{model}: at most 3 % at the {end} rate, {rate:g} Gbit/s"
            found.append(exactly(claim, float(gains[rate]), -0.03, 0.03))
    most = rows[rows["variant"] == "P3"].groupby("model")["gain"].max()
    ratio = float(most["alexnet"] / most["resnet50"])
    found.append(exactly("the VGG-like model gains more than the ResNet", ratio, 1, float("inf"), " times"))
    return [*found, _interior(frame[frame["study"] == "slice"])]


def _interior(slices: pd.DataFrame) -> Assertion:
    claim = "the best slice is neither the smallest nor the largest"
    speed = slices.set_index("slice_bytes")["speed"].sort_index()
    told = ", ".join(f"{size / 1e6:g} MB {value:.4g}" for size, value in speed.items())
    inside = speed.index[0] < speed.idxmax() < speed.index[-1]
    why = "" if inside else "the best here lies at an end of the range"
    return Assertion(claim, told, "pass" if inside else "fail", why)


FIGURE = PaperFigure(
    title="Priority-based parameter propagation against bandwidth",
    source="Jayarajan et al., MLSys 2019 (P3)",
    needs=("order=p3", "paradigm=ps"),
    studies=studies, derive=derive, draw=draw, check=check, size_in=(11.5, 3.6),
)  # fmt: skip
