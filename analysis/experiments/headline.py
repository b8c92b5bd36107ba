"""Time to the same accuracy: a flat parameter server against the best stack, from 10 to 500 Mbit/s.

    python -m analysis.experiments.headline OUT [--rates 10 20 50 100 500] [--emulate] [--target 0.95]

GeoMX claims 20 times, without data. Two data centres of four workers and one that only serves, as in its demo; the demo
CNN on real digits. All stacks are simulated; with --emulate the flat server and the stack that was best at that rate
run in real processes too. Rates above what emulation can make here are emulated in slow motion: every rate divided,
every delay and step multiplied by the same factor, and the time divided by it in the end; the table says so. Writes
headline.csv and headline.png; what is in them is not run again.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.experiments import virtual
from analysis.experiments.command import run
from analysis.experiments.stragglers import write
from analysis.figures import panels
from analysis.identity import Identity
from testbed.results import atomic

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
training: {model: cnn, data: digits, batch: 32, rounds: 400, target_accuracy: 95 %, evaluate_every: 5}
device: {pace: paced, step_time: 50 ms}
optimizer: {kind: adam, learning_rate: 0.002}
"""
DELAYS_MS, STEP_MS, LAN_MBIT = (25.0, 40.0), 50.0, 1000.0
CEILING_MBIT = 125.0  # half of what two cores can emulate, as two links are busy at once
_EVERY = "training.evaluate_every=1"
_LOCAL = "optimizer={kind: adam, learning_rate: 0.002, at: worker}"
FLAT = "flat PS"
STACKS: dict[str, tuple[str, ...]] = {
    FLAT: ("paradigm=ps",),
    "HiPS": (),
    "Bi-Sparse": (_LOCAL, "codec={tier1: none, tier2: {kind: bisparse, ratio: 0.05, pull: sparse-sum}}"),
    "MPQ": (_LOCAL, "codec={kind: mpq, ratio: 0.02, pull: sparse-sum}"),
    "HFA 5x2 + FP16": (_LOCAL, "sync={kind: hfa, k1: 5, k2: 2}", "codec=fp16", _EVERY),
    "HFA 10x2 + FP16": (_LOCAL, "sync={kind: hfa, k1: 10, k2: 2}", "codec=fp16", _EVERY),
    "DiLoCo 5 + FP16": (_LOCAL, "sync={kind: diloco, h: 5}", "codec=fp16", _EVERY),
    "DiLoCo 5 + MPQ": (_LOCAL, "sync={kind: diloco, h: 5}", "codec={kind: mpq, ratio: 0.1, pull_ratio: 0.2}", _EVERY),
}
_COLOURS = ("#000000", "#999999", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#D55E00", "#56B4E9")
LOOKS = {stack: Identity(stack, colour, "s") for stack, colour in zip(STACKS, _COLOURS, strict=True)}


@dataclass(frozen=True, slots=True)
class Row:
    """One run. ``slow_motion``: the factor by which it was slowed; times here are as without."""

    stack: str
    rate_mbit_s: float
    on: str
    slow_motion: float
    time_to_target_s: float
    rounds: int
    wan_bytes: int


def measure(stack: str, rate: float, on: str, out: Path, target: float) -> Row | None:
    """``None`` if the run did not end well, or did not reach the target."""
    slower = max(1.0, rate / CEILING_MBIT) if on == "emulate" else 1.0
    settings = [
        f"topology.links[*].rate={rate / slower:g} Mbit/s",
        *(f"topology.links[{index}].delay={delay * slower:g} ms" for index, delay in enumerate(DELAYS_MS)),
        f"topology.lan={{rate: {LAN_MBIT / slower:g} Mbit/s, delay: {0.1 * slower:g} ms}}",
        f"device.step_time={STEP_MS * slower:g} ms",
        f"training.target_accuracy={target:g}",
        *STACKS[stack],
    ]
    if on == "simulate":
        return _simulated(stack, rate, settings, target)
    ended = run(out / "headline.yaml", on, out / on / f"{rate:g}-{list(STACKS).index(stack)}", settings)
    if ended.status != "done" or ended.result["time_to_target_s"] is None:
        write(f"{rate:g} Mbit/s, {stack}, {on}: {ended.status}, target reached: {bool(ended.result)}")
        return None
    moved = sum(site["up"] for site in ended.result["wan_payload_bytes"].values())
    return Row(stack, rate, on, slower, ended.result["time_to_target_s"] / slower, ended.result["rounds"], moved)


def _simulated(stack: str, rate: float, settings: list[str], target: float) -> Row | None:
    found = virtual.run(SCENARIO, *settings)
    time_s = found.time_to(target)
    if time_s is None:
        write(f"{rate:g} Mbit/s, {stack}, simulate: the target was not reached")
        return None
    moved = sum(e["payload_bytes"] for e in found.of("transfer") if e["tier"] == "wan" and e["round"] >= 0)
    return Row(stack, rate, "simulate", 1.0, time_s, 1 + max(event["round"] for event in found.of("round")), moved)


def best(rows: list[Row], rate: float) -> str | None:
    """The stack that was simulated to be there first."""
    times = [(row.time_to_target_s, row.stack) for row in rows if (row.on, row.rate_mbit_s) == ("simulate", rate)]
    return min(times)[1] if times else None


def ratios(rows: list[Row], on: str) -> dict[tuple[str, float], float]:
    """How many times sooner than the flat server a stack is there, by stack and rate."""
    times = {(row.stack, row.rate_mbit_s): row.time_to_target_s for row in rows if row.on == on}
    return {(stack, rate): times[FLAT, rate] / time_s for (stack, rate), time_s in times.items()
            if (FLAT, rate) in times}  # fmt: skip


def draw(rows: list[Row]) -> Figure:
    """Times on the left, ratios on the right; lines are simulated, marks emulated."""
    with panels.style():
        figure = Figure(figsize=(9.4, 4.0), layout="constrained")
        times, gain = figure.subplots(1, 2)
        for stack, look in LOOKS.items():
            for on in ("simulate", "emulate"):
                mine = [row for row in rows if (row.stack, row.on) == (stack, on)]
                _series(times, [(row.rate_mbit_s, row.time_to_target_s) for row in mine], look, on)
                if stack != FLAT:
                    found = ratios(rows, on)
                    pairs = [(row.rate_mbit_s, found[stack, row.rate_mbit_s]) for row in mine
                             if (stack, row.rate_mbit_s) in found]  # fmt: skip
                    _series(gain, pairs, look, on)
        gain.axhline(20, color=panels.MUTED, linestyle=(0, (1, 1.6)), linewidth=1.0)
        gain.annotate("GeoMX' claim (published without rate and data)", (0.98, 20), (0, 2), ha="right",
                      xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=6.8,
                      color=panels.MUTED)  # fmt: skip
        for axes, title, label in (
            (times, "Time to the same accuracy", "time to target (s)"),
            (gain, "How many times sooner than a flat PS", "time of flat PS / time of the stack"),
        ):
            _axes(axes, title, label)
        gain.set_ylim(bottom=0)
        times.set_yscale("log")
        times.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        figure.legend(*times.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def _axes(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title)
    axes.set_ylabel(label)
    axes.set_xlabel("rate of every WAN link (Mbit/s)")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "25" else "")


def _series(axes: Axes, points: list[tuple[float, float]], look: Identity, on: str) -> None:
    if points:
        simulated = on == "simulate"
        label = look.label if simulated else f"{look.label}, emulated"
        line, marker = ("-", ".") if simulated else ("", look.marker)
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(xs, ys, color=look.color, linestyle=line, marker=marker, label=label, zorder=2 if simulated else 3)


def kept(path: Path) -> list[Row]:
    """The rows of an earlier call."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return [Row(r["stack"], float(r["rate_mbit_s"]), r["on"], float(r["slow_motion"]),
                    float(r["time_to_target_s"]), int(r["rounds"]), int(r["wan_bytes"]))
                for r in csv.DictReader(file)]  # fmt: skip


def store(rows: list[Row], path: Path) -> None:
    """As a table, whole at any time."""
    with atomic.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(Row.__slots__))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 20.0, 50.0, 100.0, 500.0], help="Mbit/s")
    parser.add_argument("--emulate", action="store_true", help="in real processes too: minutes")
    parser.add_argument("--target", type=float, default=0.95)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "headline.yaml").write_text(SCENARIO)
    table = chosen.out / "headline.csv"
    rows = kept(table)
    for on in ("simulate", "emulate") if chosen.emulate else ("simulate",):
        for rate in chosen.rates:
            wanted = list(STACKS) if on == "simulate" else [FLAT, best(rows, rate)]
            there = {row.stack for row in rows if (row.on, row.rate_mbit_s) == (on, rate)}
            for stack in wanted:
                row = measure(stack, rate, on, chosen.out, chosen.target) if stack and stack not in there else None
                rows += [row] if row else []
                store(rows, table)
    _tell(rows)
    draw(rows).savefig(chosen.out / "headline.png", dpi=160)
    return 0


def _tell(rows: list[Row]) -> None:
    write(f"{'Mbit/s':>7} {'stack':18} {'':8} {'s to target':>11} {'rounds':>7} {'WAN MB':>8}  times sooner")
    for row in sorted(rows, key=lambda row: (row.rate_mbit_s, row.on, -row.time_to_target_s)):
        ratio = ratios(rows, row.on).get((row.stack, row.rate_mbit_s), float("nan"))
        slow = f"  in {row.slow_motion:g}x slow motion" if row.slow_motion != 1 else ""
        write(f"{row.rate_mbit_s:7g} {row.stack:18} {row.on:8} {row.time_to_target_s:11.2f} {row.rounds:7} "
              f"{row.wan_bytes / 1e6:8.2f}  {ratio:.1f}{slow}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
