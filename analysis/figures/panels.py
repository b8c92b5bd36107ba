"""Parts that several figures share: style, axes in readable units, accuracy curves, stacked time, rates of links."""

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
WIDTHS_IN = {1: 3.5, 2: 7.2}  # one and two columns of two-column papers (IEEE, ACM)
MUTED = "#555B66"
CONFIGURED = "#20242C"
ACHIEVED = "#56B4E9"
QUIET_SHARE = 1e-3  # a link that uses a smaller share of its rate is not drawn: its area would be invisible
SAMPLES_DRAWN = 400  # samples of a link: a screen has no more pixels for them
_LABELLED_SHARE = 0.07  # a segment with a smaller share of the width has no room for its number


@contextmanager
def style(columns: int = 2) -> Iterator[None]:
    """Apply the style of all figures. ``columns=1``: that of figures for one column of a two-column paper."""
    with mpl.rc_context(fname=str(STYLE)):
        if columns == 1:
            matplotlib.style.use(ONE_COLUMN)
        yield


class PaperFigure(Figure):
    """A figure whose PDF always has TrueType fonts, which publishers require."""

    def savefig(self, *arguments: Any, **options: Any) -> None:
        with mpl.rc_context({"pdf.fonttype": 42}):
            super().savefig(*arguments, **options)


def learning_axis(axes: Axes, target: Target | None) -> None:
    """Label the y axis for the target's measure, by default accuracy in per cent; draw the target as a thin line."""
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
    """Draw a line with sparse markers, wider if ``covered`` later lines will cover it, so that it stays visible."""
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
    """Draw the target's measure, by default accuracy, over ``time_s`` or ``wan_bytes``, with one line per run."""
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


def learning_legend(axes: Axes, target: Target | None, opacity: float) -> None:
    """Draw the legend where curves rarely are: above those of losses and of low accuracies, below those of others."""
    curves = [line for line in axes.lines if not str(line.get_label()).startswith("target")]
    scores = [score for line in curves for score in np.asarray(line.get_ydata(), dtype=float).tolist()]
    highest = max(scores, default=1.0)
    is_below = learning_of(target) == ACCURACY and highest > 0.5
    axes.legend(
        loc="lower right" if is_below else "upper right",
        frameon=True,
        facecolor="white",
        edgecolor="none",
        framealpha=opacity,
    )


def stacked_time(axes: Axes, names: Sequence[str], split: pd.DataFrame) -> None:
    """Draw a horizontal bar per name, the first on top, with a segment for each part of the time that occurs."""
    widest = float(split[[f"{part}_s" for part in PARTS]].sum(axis=1).max())
    factor, unit = (1000.0, "ms") if widest < 2 else (1.0, "s")
    widest *= factor
    places = range(len(names))
    left = [0.0] * len(names)
    for part, look in PARTS.items():
        widths = (split[f"{part}_s"] * factor).tolist()
        if not any(widths):
            continue  # also leave it out of the legend
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
    """Label the x axis with training time in seconds, or in minutes for long runs, with ticks at round numbers."""
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
    """Return when the last round, or the last process of a user's program, ended (s since the start of training).

    If no such end is recorded, as after a host was killed, return the time of the last round or sample of a link.
    """
    ended = run.tables["rounds" if run.program is None else "finals"]
    known = [ended] if len(ended) else [run.tables[name] for name in ("rounds", "links")]
    end_s = max((float(table["t_s"].max()) for table in known if len(table)), default=0.0)
    return max(end_s - run.start_s, 1e-3)


def links_by_traffic(run: StoredRun) -> list[str]:
    """Return the names of the sampled links, those with the most bytes first."""
    return [str(name) for name in run.tables["links"].groupby("link")["bytes"].max().sort_values(ascending=False).index]


def used_links(run: StoredRun) -> tuple[list[str], list[str]]:
    """Return the links that carried traffic, the busiest first, and those that carried almost none."""
    samples = run.tables["links"]
    share = (samples["achieved_bps"].fillna(0) / samples["configured_bps"]).groupby(samples["link"]).max()
    quiet = set(share.index[share < QUIET_SHARE])
    names = links_by_traffic(run)
    return [name for name in names if name not in quiet], sorted(quiet)


def rates_of_links(figure: Figure | SubFigure, grid: Sequence[Axes], run: StoredRun, names: Sequence[str]) -> list[Any]:
    """Draw the configured and achieved rate of each link over training time. Return the handles of the legend.

    Each link has its own scale, all in the same unit. The remaining axes of ``grid`` stay empty.
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
        if not len(achieved) or achieved.max() < QUIET_SHARE * of_link["configured_bps"].max() * factor:
            say(axes, f"below {numbers.share(QUIET_SHARE)} of its rate" if achieved.any() else "no traffic")
        # a sample is the mean of the interval that ends with it
        axes.fill_between(time_s, achieved, step="pre", color=ACHIEVED, linewidth=0, alpha=0.85)
        axes.step(time_s, of_link["configured_bps"] * factor, where="pre", color=CONFIGURED, linewidth=1.2)
        axes.set_title(name.replace(">", " → "), fontsize=8.5, fontweight="normal", pad=2)
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=(1, 2, 2.5, 5, 10)))
        axes.set_ylim(bottom=0)
        time_axis(axes, end_s)
        axes.set_xlabel("")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_label_coords(0.5, 0.5)  # the label is empty; without this, each drawing would search its position
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    figure.supxlabel(f"training time ({time_unit(end_s)[0]})", fontsize=8.5, color="#333333")
    figure.supylabel(f"rate ({unit})", fontsize=8.5, color="#333333")
    return [Line2D([], [], color=CONFIGURED, label="configured"), Patch(color=ACHIEVED, label="achieved")]


def thinned(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of one link, with neighbours combined so that at most ``SAMPLES_DRAWN`` are left.

    The achieved rate is their mean, and the configured rate the last one, because it changes in steps.
    """
    size = -(-len(samples) // SAMPLES_DRAWN)
    if size <= 1:
        return samples
    groups = samples.assign(of=np.arange(len(samples)) // size).groupby("of")
    return groups.agg({"t_s": "last", "achieved_bps": "mean", "configured_bps": "last"})


def without_split(axes: Axes) -> None:
    """Write why there is no ``stacked_time``: the logs are brief."""
    axes.set_axis_off()
    say(axes, NOT_LOGGED.replace(": ", ":\n"))


def say(axes: Axes, text: str) -> None:
    """Write a text in the middle of the axes, instead of a drawing."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
