"""Time to the same accuracy: a flat parameter server against the best stack, from 10 to 500 Mbit/s.

    python -m analysis.experiments.headline OUT [--rates 10 20 50 100 500] [--emulate] [--target 0.95]

GeoMX claims 20 times, without data. Two data centres of four workers and one that only serves, as in its demo; the demo
CNN on real digits. Simulated, and with --emulate in real processes too. Rates above what emulation can make here are
emulated in slow motion: every rate divided, every delay and step multiplied by the same factor, and the time divided
by it in the end; the table says so. Writes headline.csv and headline.png; finished runs are kept.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments.command import run
from analysis.experiments.stragglers import write
from analysis.figures import panels
from analysis.identity import Identity

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
    - {between: [central, east], rate: 20 Mbit/s, delay: 25 ms}
    - {between: [central, west], rate: 20 Mbit/s, delay: 40 ms}
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training: {model: cnn, data: digits, batch: 32, iterations: 400, target_accuracy: 95 %, evaluate_every: 5}
device: {pace: paced, step_time: 50 ms}
optimizer: {kind: adam, learning_rate: 0.002}
"""
DELAYS_MS, STEP_MS, LAN_MBIT = (25.0, 40.0), 50.0, 1000.0
CEILING_MBIT = 125.0  # half of what two cores can emulate, as two links are busy at once
_LOCAL = "optimizer={kind: adam, learning_rate: 0.002, at: worker}"
STACKS: dict[str, tuple[str, ...]] = {
    "flat PS": ("paradigm=ps",),
    "HiPS + HFA + FP16": (_LOCAL, "sync={kind: hfa, k1: 5, k2: 2}", "codec=fp16", "training.evaluate_every=1"),
}
FLAT, BEST = tuple(STACKS)
LOOKS = {FLAT: Identity(FLAT, "#000000", "s"), BEST: Identity(BEST, "#009E73", "D")}


@dataclass(frozen=True, slots=True)
class Row:
    """One run. ``slow_motion``: the factor by which it was slowed; times here are as without."""

    stack: str
    rate_mbit_s: float
    on: str
    slow_motion: float
    time_to_target_s: float
    iterations: int
    wan_bytes: int


def measure(stack: str, rate: float, on: str, out: Path, target: float) -> Row | None:
    """``None`` if the run did not end well, or did not reach the target."""
    slower = max(1.0, rate / CEILING_MBIT) if on == "emulate" else 1.0
    settings = [
        *STACKS[stack],
        f"topology.links[*].rate={rate / slower:g} Mbit/s",
        *(f"topology.links[{index}].delay={delay * slower:g} ms" for index, delay in enumerate(DELAYS_MS)),
        f"topology.lan={{rate: {LAN_MBIT / slower:g} Mbit/s, delay: {0.1 * slower:g} ms}}",
        f"device.step_time={STEP_MS * slower:g} ms",
        f"training.target_accuracy={target:g}",
    ]
    ended = run(out / "headline.yaml", on, out / on / f"{rate:g}-{list(STACKS).index(stack)}", settings)
    if ended.status != "done" or ended.result["time_to_target_s"] is None:
        write(f"{stack}, {rate:g} Mbit/s, {on}: {ended.status}, target reached: {bool(ended.result)}")
        return None
    moved = sum(site["up"] for site in ended.result["wan_payload_bytes"].values())
    time_s = ended.result["time_to_target_s"] / slower
    return Row(stack, rate, on, slower, time_s, ended.result["iterations"], moved)


def ratios(rows: list[Row]) -> dict[tuple[str, float], float]:
    """How many times sooner the best stack is there, by back end and rate."""
    times = {(row.stack, row.on, row.rate_mbit_s): row.time_to_target_s for row in rows}
    return {(on, rate): time_s / times[BEST, on, rate] for (stack, on, rate), time_s in times.items()
            if stack == FLAT and (BEST, on, rate) in times}  # fmt: skip


def draw(rows: list[Row]) -> Figure:
    """Times on the left, ratios on the right; lines are simulated, marks emulated."""
    with panels.style():
        figure = Figure(figsize=(8.6, 3.5), layout="constrained")
        times, gain = figure.subplots(1, 2)
        for stack, look in LOOKS.items():
            points = {on: _points(rows, stack, on) for on in ("simulate", "emulate")}
            _series(times, points, look)
        found = ratios(rows)
        by_world = {on: sorted((rate, value) for (where, rate), value in found.items() if where == on)
                    for on in ("simulate", "emulate")}  # fmt: skip
        _series(gain, by_world, Identity("flat PS / best stack", "#0072B2", "o"))
        gain.axhline(20, color=panels.MUTED, linestyle=(0, (1, 1.6)), linewidth=1.0)
        gain.annotate("GeoMX' claim (no rate, no data)", (0.98, 20), (0, 2), xycoords=("axes fraction", "data"),
                      textcoords="offset points", ha="right", fontsize=6.8, color=panels.MUTED)  # fmt: skip
        for axes, title, label in (
            (times, "Time to the same accuracy", "time to target (s)"),
            (gain, "How many times sooner", "time of flat PS / time of best stack"),
        ):
            axes.set_title(title)
            axes.set_ylabel(label)
            axes.set_xlabel("rate of every WAN link (Mbit/s)")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_ylim(bottom=0)
            axes.legend()
        times.set_yscale("log")
        times.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return figure


def _points(rows: list[Row], stack: str, on: str) -> list[tuple[float, float]]:
    return sorted((row.rate_mbit_s, row.time_to_target_s) for row in rows if (row.stack, row.on) == (stack, on))


def _series(axes: Axes, points: dict[str, list[tuple[float, float]]], look: Identity) -> None:
    for on, shown in points.items():
        if shown:
            line, marker = ("-", "") if on == "simulate" else ("", look.marker)
            label = f"{look.label}, {on}d"
            axes.plot(*zip(*shown, strict=True), color=look.color, linestyle=line, marker=marker, label=label)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 20.0, 50.0, 100.0, 500.0], help="Mbit/s")
    parser.add_argument("--emulate", action="store_true", help="in real processes too: minutes")
    parser.add_argument("--target", type=float, default=0.95)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "headline.yaml").write_text(SCENARIO)
    rows: list[Row] = []
    write(f"{'Mbit/s':>7} {'stack':18} {'':8} {'s to target':>11} {'rounds':>7} {'WAN MB':>8}  ratio")
    for on in ("simulate", "emulate") if chosen.emulate else ("simulate",):
        for rate in chosen.rates:
            for stack in STACKS:
                row = measure(stack, rate, on, chosen.out, chosen.target)
                if row is not None:
                    rows.append(row)
                    _tell(row, ratios(rows).get((on, rate)) if stack == BEST else None)
    with open(chosen.out / "headline.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(Row.__slots__))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    draw(rows).savefig(chosen.out / "headline.png", dpi=160)
    return 0


def _tell(row: Row, ratio: float | None) -> None:
    slow = f"  in {row.slow_motion:g}x slow motion" if row.slow_motion != 1 else ""
    write(f"{row.rate_mbit_s:7g} {row.stack:18} {row.on:8} {row.time_to_target_s:11.2f} {row.iterations:7} "
          f"{row.wan_bytes / 1e6:8.2f}  {f'{ratio:.1f}x' if ratio else ''}{slow}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
