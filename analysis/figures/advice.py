"""The figure of an advice: the ranking with its intervals, and the time of techniques over the bytes that they send."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis import identity
from analysis.advise.advice import BEATEN, RANKED, Advice, Row
from analysis.advise.goal import BYTES, MONEY
from analysis.figures import panels
from analysis.identity import Identity
from testbed import numbers

_WIDTH_IN = 11.0
_ROW_IN = 0.3
_BELOW_IN = 2.6
_BETWEEN_MAPS = 0.5
_MAP_CHARACTERS = 27  # of a line of a name, over all sizes of the model side by side
_WIDE = 10  # an axis is logarithmic if its highest value is more than this multiple of the lowest one
_TITLES = {BYTES: "bytes over the WAN (MB)", MONEY: "costs (USD)"}


def draw(advice: Advice) -> Figure:
    """Draw the ranking, time over traffic and, if known, where the time goes and which technique wins elsewhere."""
    rows = shown(advice)
    more = bool(advice.splits) + bool(advice.elsewhere)
    with panels.style():
        height = 1.6 + _ROW_IN * max(6, len(rows))
        size = (_WIDTH_IN, height + (_BELOW_IN if more else 0))
        figure = panels.PaperFigure(figsize=size, layout="constrained")
        names: Any = [["ranking", "pareto"], *([["why", "map"]] if more else [])]
        axes = figure.subplot_mosaic(names, height_ratios=[height, _BELOW_IN][: len(names)], width_ratios=(1.1, 1))
        ranking(axes["ranking"], advice, rows)
        pareto(axes["pareto"], advice, rows)
        if more:
            why(axes["why"], advice)
            elsewhere(axes["map"], advice)
        return figure


def shown(advice: Advice) -> list[Row]:
    """Return the rows to draw: techniques that reach the goal, and beaten ones with their lower bounds."""
    return [row for row in advice.rows if row.outcome in (RANKED, BEATEN) and row.estimate is not None]


def why(axes: Axes, advice: Advice) -> None:
    """Draw one bar for each of the best techniques: its time to the goal, split into parts."""
    axes.set_title("Where the time to the goal goes")
    if not advice.splits:
        _nothing(axes)
        return
    split = pd.DataFrame([{f"{part}_s": each[part] for part in each} for each in advice.splits.values()])
    panels.stacked_time(axes, list(advice.splits), split)
    axes.set_xlabel(axes.get_xlabel().replace("mean time per round", "time to the goal"))
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.3), ncols=5, handlelength=1, columnspacing=1.0)


def elsewhere(axes: Axes, advice: Advice) -> None:
    """Draw a map of the winners over the factors of all rates and all delays, for each size of the model."""
    axes.set_title("First on other networks")
    if not advice.elsewhere:
        _nothing(axes)
        return
    rates = sorted({each.place.rate for each in advice.elsewhere})
    delays = sorted({each.place.delay for each in advice.elsewhere})
    sizes = sorted({each.place.size for each in advice.elsewhere})
    rows = {row.name: row for row in advice.rows}
    for each in advice.elsewhere:
        column = rates.index(each.place.rate) + sizes.index(each.place.size) * (len(rates) + _BETWEEN_MAPS)
        line = delays.index(each.place.delay)
        look = look_of(advice, rows[each.winner])
        axes.add_patch(Rectangle((column - 0.5, line - 0.5), 1, 1, facecolor=look.color, alpha=0.25, edgecolor="white"))
        name = textwrap.fill(each.winner.partition(" (")[0], _MAP_CHARACTERS // len(sizes))
        axes.text(column, line, name, ha="center", va="center", fontsize=9 if len(sizes) == 1 else 7)
    starts = [place * (len(rates) + _BETWEEN_MAPS) for place in range(len(sizes))]
    axes.set_xticks(
        [start + place for start in starts for place in range(len(rates))],
        [f"{rate:g}×" for rate in rates] * len(sizes),
    )
    axes.set_yticks(range(len(delays)), [f"{delay:g}×" for delay in delays])
    axes.set_xlim(-0.5, starts[-1] + len(rates) - 0.5)
    axes.set_ylim(-0.5, len(delays) - 0.5)
    axes.set_xlabel("all rates")
    axes.set_ylabel("all delays")
    axes.grid(visible=False)
    if len(sizes) > 1:
        for start, size in zip(starts, sizes, strict=True):
            middle = start + (len(rates) - 1) / 2
            axes.text(middle, len(delays) - 0.45, f"model {size:g}×", ha="center", va="bottom", fontsize=8)
        axes.set_title("First on other networks, and with other sizes of the model", pad=16)


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not looked at", transform=axes.transAxes, ha="center", color=panels.MUTED)
    axes.set_axis_off()


def look_of(advice: Advice, row: Row) -> Identity:
    """Return colour and marker of a row's technique."""
    technique = msgspec.to_builtins(advice.known[row.name].candidate.plan.technique)
    return identity.technique(identity.technique_of({"program": None, "technique": technique}))


def ranking(axes: Axes, advice: Advice, rows: list[Row]) -> None:
    """Draw each value with its interval, the best on top."""
    scale = 1e-6 if advice.goal.least == BYTES else 1.0
    for place, row in enumerate(rows):
        found = row.estimate
        assert found is not None
        look = look_of(advice, row)
        value = found.value * scale
        if row.outcome == BEATEN:
            axes.plot(value, place, marker=">", color=panels.MUTED, linestyle="none")
            continue
        axes.plot((found.low * scale, found.high * scale), (place, place), color=look.color, linewidth=1.6)
        axes.plot(value, place, marker=look.marker, color=look.color, linestyle="none")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    values = [scale * row.estimate.value for row in rows if row.estimate is not None]
    if values and max(values) > _WIDE * min(values):
        _logarithmic(axes)
    else:
        axes.set_xlim(left=0)
    wanted = "a sample" if advice.goal.target is None else advice.goal.target.told
    axes.set_title(f"To {wanted}, 90 % intervals")
    axes.set_xlabel(_TITLES.get(advice.goal.least, "time (s)") + "; ▷: at least so much")


def pareto(axes: Axes, advice: Advice, rows: list[Row]) -> None:
    """Draw time over bytes. A line joins the techniques that no other one beats in both."""
    known = [row for row in rows if row.outcome == RANKED and row.time_s is not None and row.wan_bytes is not None]
    axes.set_title("Time and traffic")
    axes.set_xlabel("bytes over the WAN (MB)")
    axes.set_ylabel("time (s)")
    if not known:
        axes.text(0.5, 0.5, "not decided", transform=axes.transAxes, ha="center", color=panels.MUTED)
        return
    points = sorted(((row.wan_bytes or 0.0) / 1e6, row.time_s or 0.0, row.name) for row in known)
    front = []
    least = float("inf")
    for megabytes, time_s, _ in points:
        if time_s < least:
            least = time_s
            front.append((megabytes, time_s))
    axes.step(*zip(*front, strict=True), where="post", color=panels.MUTED, linewidth=1.0)
    by_name = {row.name: row for row in known}
    for megabytes, time_s, name in points:
        look = look_of(advice, by_name[name])
        axes.plot(megabytes, time_s, marker=look.marker, color=look.color, linestyle="none")
        axes.annotate(
            name.partition(" (")[0], (megabytes, time_s), xytext=(5, 3), textcoords="offset points", fontsize=8
        )
    if points[-1][0] > _WIDE * points[0][0]:
        _logarithmic(axes)
    axes.margins(x=0.15)
    axes.set_ylim(0, 1.15 * max(time_s for _, time_s, _ in points))


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: numbers.short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
