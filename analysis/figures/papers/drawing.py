"""What the figures from papers share: lines with intervals over seeds, axes with units, the published overlay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from analysis import numbers
from analysis.figures import panels
from analysis.figures.papers.base import Published
from analysis.identity import Identity
from analysis.metrics import Mean, mean_of

if TYPE_CHECKING:
    import pandas as pd


def line(axes: Axes, rows: pd.DataFrame, x: str, y: str, look: Identity) -> None:
    """Mean over seeds at every ``x``, with the 95 % interval as a band where there are several seeds.

    Where some of the seeds have no value (they never reached a target), the mean is of the others, and that is said.
    """
    groups: Any = rows.groupby(x)
    known = [(float(at), group[y].dropna().tolist(), len(group)) for at, group in groups if group[y].notna().any()]
    if not known:
        return
    xs, means = [at for at, _, _ in known], [mean_of(values) for _, values, _ in known]
    axes.plot(xs, [mean.value for mean in means], color=look.color, marker=look.marker, linestyle=look.line,
              label=look.label, markeredgecolor="white", markeredgewidth=0.6)  # fmt: skip
    if all(mean.count > 1 for mean in means):
        low, high = ([mean.value + side * mean.half_width for mean in means] for side in (-1, 1))
        axes.fill_between(xs, low, high, color=look.color, alpha=0.13, linewidth=0)
    for (at, values, seeds), mean in zip(known, means, strict=True):
        _some_only(axes, (at, mean.value), len(values), seeds, look.color)


def _some_only(axes: Axes, at: tuple[float, float], count: int, of: int, color: str = panels.MUTED) -> None:
    """How many seeds a mean is of, where it is not all."""
    if count < of:
        axes.annotate(f"{count}/{of} seeds", at, (0, 11), textcoords="offset points", ha="center", fontsize=6.8,
                      color=color)  # fmt: skip


def bars(axes: Axes, rows: pd.DataFrame, y: str, looks: dict[str, Identity]) -> None:
    """One bar per variant: mean and interval over seeds, of those that have a value."""
    for place, (variant, look) in enumerate(looks.items()):
        of_variant = rows.loc[rows["variant"] == variant, y]
        values = of_variant.dropna().tolist()
        if not values:
            continue
        mean = mean_of(values)
        error = mean.half_width if mean.count > 1 else None
        axes.bar(place, mean.value, width=0.68, color=look.color, yerr=error, ecolor="#20242C", capsize=2.5)
        at = (place, mean.value + (error or 0.0))
        axes.annotate(numbers.short(mean.value), at, (0, 3), textcoords="offset points", ha="center", fontsize=7.5)
        _some_only(axes, at, mean.count, len(of_variant))
    axes.set_xticks(range(len(looks)), [look.label for look in looks.values()])
    axes.grid(axis="x", visible=False)


def note(axes: Axes, shown: Sequence[Published], text: str) -> None:
    """Published numbers as words under the axes, with their source."""
    if shown:
        axes.text(0.0, -0.32, text, transform=axes.transAxes, fontsize=6.8, color=panels.MUTED, va="top")


def horizontal(axes: Axes, y: float, label: str) -> None:
    """A published value that has no place on the x axis."""
    axes.axhline(y, color=panels.MUTED, linestyle=(0, (1, 1.6)), linewidth=1.0)
    where: Any = ("axes fraction", "data")
    style: Any = {"textcoords": "offset points", "fontsize": 6.8, "color": panels.MUTED}
    axes.annotate(label, (0.02, y), (0, 2), xycoords=where, **style)


def log_rate(axes: Axes, label: str = "rate of every WAN link (Mbit/s)") -> None:
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())


def accuracy(axes: Axes, **limits: Any) -> None:
    panels.accuracy_axis(axes, None)
    axes.set_ylim(**{"bottom": 0, "top": 1.02, **limits})


def mean_curve(axes: Axes, rows: pd.DataFrame, x: str, y: str, color: str, line: Any, label: str | None = None) -> None:
    """Mean over seeds of curves with different ``x``: evaluation by evaluation, both averaged."""
    if rows.empty:
        return
    number = rows.sort_values(x).groupby("seed").cumcount()
    means = rows.sort_values(x).groupby(number)[[x, y]].mean()
    axes.plot(means[x], means[y], color=color, linestyle=line, linewidth=1.4, label=label)


def bar(axes: Any, place: float, mean: Mean, color: str, width: float, *, hollow: bool = False) -> None:
    """One bar with its interval."""
    error = mean.half_width if mean.count > 1 else None
    look: Any = {"facecolor": "white", "edgecolor": color} if hollow else {"color": color}
    axes.bar(place, mean.value, width=width, yerr=error, ecolor="#20242C", capsize=2, linewidth=1.2, **look)


def error_bars(axes: Axes, errors: Mapping[str, Sequence[float]], looks: Mapping[str, Identity]) -> None:
    """Relative errors in per cent: one point per seed and their mean."""
    for place, (name, look) in enumerate(looks.items()):
        values = [100 * value for value in errors[name]]
        if values:
            axes.plot([place] * len(values), values, "o", color=look.color, markersize=3, alpha=0.6)
            axes.plot([place - 0.25, place + 0.25], [sum(values) / len(values)] * 2, color=look.color, linewidth=2)
    axes.axhline(0, color=panels.MUTED, linewidth=0.9)
    axes.set_xticks(range(len(looks)), [look.label for look in looks.values()], rotation=30, ha="right")
    axes.grid(axis="x", visible=False)
