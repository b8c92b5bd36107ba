"""Panels that several figures share: style, axes in readable units, accuracy curves, stacked time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from analysis import numbers
from analysis.identity import PARTS, Identity

if TYPE_CHECKING:
    import pandas as pd

STYLE = Path(__file__).parent.parent / "style.mplstyle"
ONE_COLUMN = STYLE.with_name("one_column.mplstyle")
WIDTHS_IN = {1: 3.5, 2: 7.2}  # of a column and of a page's text in two-column papers (IEEE, ACM)
MUTED = "#555B66"
_LABELLED_SHARE = 0.07  # a narrower segment has no room for its number


@contextmanager
def style(columns: int = 2) -> Iterator[None]:
    """The look of all figures; of those that fill one of two columns, with ``columns=1``."""
    with mpl.rc_context(fname=str(STYLE)):
        if columns == 1:
            matplotlib.style.use(ONE_COLUMN)
        yield


def accuracy_axis(axes: Axes, target: float | None) -> None:
    """Per cent on the y axis, from 0 to 100, with the target as a thin line."""
    axes.set_ylabel("test accuracy (%)")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.0f}"))
    if target is not None:
        label = f"target {numbers.target(target)}"
        axes.axhline(target, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label=label)


def curve(axes: Axes, x: Any, y: Any, look: Identity, label: str | None = None) -> None:
    """One line with sparse markers."""
    every = max(1, len(x) // 15)
    axes.plot(x, y, color=look.color, linestyle=look.line, marker=look.marker, markevery=every,
              markeredgecolor=look.color if look.hollow else "white", markeredgewidth=0.9 if look.hollow else 0.6,
              markerfacecolor="white" if look.hollow else look.color, label=label or look.label)  # fmt: skip


def stacked_time(axes: Axes, names: Sequence[str], split: pd.DataFrame) -> None:
    """A horizontal bar per name, one segment per part of the time, in ms or s; the first name on top."""
    factor, unit = _time_unit(float(split[[f"{part}_s" for part in PARTS]].sum(axis=1).max()))
    places = range(len(names))
    left = [0.0] * len(names)
    widest = float(split[[f"{part}_s" for part in PARTS]].sum(axis=1).max()) * factor
    for part, look in PARTS.items():
        widths = (split[f"{part}_s"] * factor).tolist()
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
    """The unit of an axis of training time, and its seconds."""
    return ("min", 60.0) if end_s > 600 else ("s", 1.0)


def _time_unit(longest_s: float) -> tuple[float, str]:
    return (1000.0, "ms") if longest_s < 2 else (1.0, "s")
