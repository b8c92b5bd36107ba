"""Panels that several figures share: style, axes in readable units, accuracy curves, stacked time, rates of links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from analysis.identity import PARTS, Identity
from analysis.load import NOT_LOGGED, StoredRun
from analysis.metrics import accuracy_curve
from testbed import numbers
from testbed.target import ACCURACY, Target, learning_of

if TYPE_CHECKING:
    import pandas as pd

STYLE = Path(__file__).parent.parent / "style.mplstyle"
ONE_COLUMN = STYLE.with_name("one_column.mplstyle")
WIDTHS_IN = {1: 3.5, 2: 7.2}  # of a column and of a page's text in two-column papers (IEEE, ACM)
MUTED = "#555B66"
CONFIGURED = "#20242C"
ACHIEVED = "#56B4E9"
_QUIET_SHARE = 1e-3  # of the highest rate: no bar would be seen
SAMPLES_DRAWN = 400  # of a link: a screen has no more columns for them
_LABELLED_SHARE = 0.07  # a narrower segment has no room for its number


@contextmanager
def style(columns: int = 2) -> Iterator[None]:
    """The look of all figures; of those that fill one of two columns, with ``columns=1``."""
    with mpl.rc_context(fname=str(STYLE)):
        if columns == 1:
            matplotlib.style.use(ONE_COLUMN)
        yield


class PaperFigure(Figure):
    """A figure whose PDF has TrueType fonts, which publishers ask for, wherever it is saved from."""

    def savefig(self, *arguments: Any, **options: Any) -> None:
        with mpl.rc_context({"pdf.fonttype": 42}):
            super().savefig(*arguments, **options)


def learning_axis(axes: Axes, target: Target | None) -> None:
    """The measure of the target on the y axis, by default accuracy in per cent, and the target as a thin line."""
    if learning_of(target) == ACCURACY:
        axes.set_ylabel("test accuracy (%)")
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.0f}"))
    else:
        axes.set_ylabel("test loss")
    if target is not None:
        label = f"target {target.name}"
        axes.axhline(target.value, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label=label)


def curve(axes: Axes, x: Any, y: Any, look: Identity, label: str | None = None, covered: int = 0) -> None:
    """One line with sparse markers; wider if ``covered`` later ones will lie upon it, so that it can be seen."""
    every = max(1, len(x) // 15)
    wider = 1 + 0.6 * covered
    axes.plot(
        x,
        y,
        color=look.color,
        linestyle=look.line,
        marker=look.marker,
        markevery=every,
        linewidth=mpl.rcParams["lines.linewidth"] * wider,
        markersize=mpl.rcParams["lines.markersize"] * wider,
        markeredgecolor=look.color if look.hollow else "white",
        markeredgewidth=0.9 if look.hollow else 0.6,
        markerfacecolor="white" if look.hollow else look.color,
        label=label or look.label,
    )


def _coincide(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    return all(len(a) == len(b) and np.allclose(a, b, rtol=0.02) for a, b in zip(one, other, strict=True))


def learning(
    axes: Axes, runs: Sequence[StoredRun], looks: Sequence[Identity], over: str, target: Target | None
) -> None:
    """The measure of the target, by default accuracy, over ``time_s`` or over ``wan_bytes``, one line per run."""
    longest = 1e-3
    curves = []
    for scores in map(accuracy_curve, runs):
        places = scores["time_s"] if over == "time_s" else scores["wan_bytes"] / 1e6
        curves.append((places, scores[learning_of(target)]))
    for number, ((x, y), look) in enumerate(zip(curves, looks, strict=True)):
        curve(axes, x, y, look, covered=sum(_coincide((x, y), later) for later in curves[number + 1 :]))
        longest = max([longest, *x])  # a run without an evaluation has no point
    learning_axis(axes, target)
    if over == "time_s":
        time_axis(axes, longest * 1.03)
    else:
        axes.set_xlabel("tensors sent over the WAN (MB)")
        axes.set_xlim(0, longest * 1.03)


def stacked_time(axes: Axes, names: Sequence[str], split: pd.DataFrame) -> None:
    """A horizontal bar per name, a segment per part of the time that occurs, in ms or s; the first name on top."""
    widest = float(split[[f"{part}_s" for part in PARTS]].sum(axis=1).max())
    factor, unit = (1000.0, "ms") if widest < 2 else (1.0, "s")
    widest *= factor
    places = range(len(names))
    left = [0.0] * len(names)
    for part, look in PARTS.items():
        widths = (split[f"{part}_s"] * factor).tolist()
        if not any(widths):
            continue  # nor in the legend
        bars = axes.barh(places, widths, left=left, height=0.68, color=look.color, label=look.label)
        texts = [numbers.short(width) if width > _LABELLED_SHARE * widest else "" for width in widths]
        axes.bar_label(bars, texts, label_type="center", fontsize=7, color="black" if part != "wan" else "white")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(0, widest * 1.02)
    axes.set_xlabel(f"mean time per round ({unit})")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def time_axis(axes: Axes, end_s: float) -> None:
    """Training time in seconds, or in minutes for long runs. A tick stands where its label says."""
    unit, unit_s = time_unit(end_s)
    axes.set_xlabel(f"training time ({unit})")
    axes.set_xlim(0, end_s)
    if unit_s == 1:
        axes.xaxis.set_major_locator(MaxNLocator(6))
        return
    ticks = [float(tick) * unit_s for tick in MaxNLocator(6).tick_values(0, end_s / unit_s)]
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= end_s]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit_s:g}"))


def time_unit(end_s: float) -> tuple[str, float]:
    return ("min", 60.0) if end_s > 600 else ("s", 1.0)


def end_of_training_s(run: StoredRun) -> float:
    """Return when the last round ended, in s since the start of training; of a user's program, its last process.

    Where none is recorded, as after a host was killed, the last that is.
    """
    ended = run.tables["rounds" if run.program is None else "finals"]
    known = [ended] if len(ended) else [run.tables[name] for name in ("rounds", "links")]
    end_s = max((float(table["t_s"].max()) for table in known if len(table)), default=0.0)
    return max(end_s - run.start_s, 1e-3)


def links_by_traffic(run: StoredRun) -> list[str]:
    """Return the names of the links that were sampled; those that carried most come first."""
    return [str(name) for name in run.tables["links"].groupby("link")["bytes"].max().sort_values(ascending=False).index]


def used_links(run: StoredRun) -> tuple[list[str], list[str]]:
    """Return the links that carried traffic, the busiest first, and those that carried none to speak of."""
    samples = run.tables["links"]
    share = (samples["achieved_bps"].fillna(0) / samples["configured_bps"]).groupby(samples["link"]).max()
    quiet = set(share.index[share < _QUIET_SHARE])  # address resolution, at most
    names = links_by_traffic(run)
    return [name for name in names if name not in quiet], sorted(quiet)


def rates_of_links(figure: Figure | SubFigure, grid: Sequence[Axes], run: StoredRun, names: Sequence[str]) -> list[Any]:
    """Configured and achieved rate of each link over training time; the rest of ``grid`` stays empty.

    Each has a scale of its own, in one unit. Returns what the legend shows.
    """
    samples = run.tables["links"]
    end_s = end_of_training_s(run)
    highest_bps = float(samples[samples["link"].isin(names)]["configured_bps"].max())
    units = ((1e-9, "Gbit/s"), (1e-6, "Mbit/s"), (1e-3, "kbit/s"))
    factor, unit = next((each for each in units if highest_bps * each[0] >= 2), units[-1])
    for axes, name in zip(grid, names, strict=False):
        of_link = thinned(samples[samples["link"] == name])
        time_s = of_link["t_s"] - run.start_s
        achieved = of_link["achieved_bps"].fillna(0) * factor
        if not len(achieved) or achieved.max() < _QUIET_SHARE * of_link["configured_bps"].max() * factor:
            say(axes, "no traffic")
        # a sample holds for the interval that ends with it
        axes.fill_between(time_s, achieved, step="pre", color=ACHIEVED, linewidth=0, alpha=0.85)
        axes.step(time_s, of_link["configured_bps"] * factor, where="pre", color=CONFIGURED, linewidth=1.2)
        axes.set_title(name.replace(">", " → "), fontsize=8.5, fontweight="normal", pad=2)
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=(1, 2, 2.5, 5, 10)))
        axes.set_ylim(bottom=0)
        time_axis(axes, end_s)
        axes.set_xlabel("")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_label_coords(0.5, 0.5)  # of no label; else its place would be found anew with every drawing
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    figure.supxlabel(f"training time ({time_unit(end_s)[0]})", fontsize=8.5, color="#333333")
    figure.supylabel(f"rate ({unit})", fontsize=8.5, color="#333333")
    return [Line2D([], [], color=CONFIGURED, label="configured"), Patch(color=ACHIEVED, label="achieved")]


def thinned(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of one link, or means of as many in a row as a picture cannot tell apart.

    Where the configured rate changes, the last of them counts: rates are steps.
    """
    size = -(-len(samples) // SAMPLES_DRAWN)
    if size <= 1:
        return samples
    groups = samples.assign(of=np.arange(len(samples)) // size).groupby("of")
    return groups.agg({"t_s": "last", "achieved_bps": "mean", "configured_bps": "last"})


def without_split(axes: Axes) -> None:
    """Instead of ``stacked_time``, where logs do not have what it takes."""
    axes.set_axis_off()
    say(axes, NOT_LOGGED.replace(": ", ":\n"))


def say(axes: Axes, text: str) -> None:
    """Instead of a picture."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
