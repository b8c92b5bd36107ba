"""The picture of an advice: the ranking with its intervals, and what techniques take of time against what they send."""

from __future__ import annotations

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis import identity
from analysis.advise.advice import BEATEN, RANKED, Advice, Row
from analysis.advise.goal import BYTES, MONEY
from analysis.figures import panels
from analysis.identity import Identity
from testbed import numbers
from testbed.numbers import target

_WIDTH_IN = 11.0
_ROW_IN = 0.3
_WIDE = 20  # so many times the least bytes are more than a linear axis shows
_TITLES = {BYTES: "bytes over the WAN (MB)", MONEY: "costs (USD)"}


def draw(advice: Advice) -> Figure:
    """Draw the techniques that reach the goal, and lower bounds of those that were beaten. Without any: an error."""
    rows = [row for row in advice.rows if row.outcome in (RANKED, BEATEN) and row.estimate is not None]
    with panels.style():
        height = 1.6 + _ROW_IN * max(6, len(rows))
        figure = panels.PaperFigure(figsize=(_WIDTH_IN, height), layout="constrained")
        ranking, pareto = figure.subplots(1, 2, width_ratios=(1.1, 1))
        _ranking(ranking, advice, rows)
        _pareto(pareto, advice, rows)
        return figure


def look_of(advice: Advice, row: Row) -> Identity:
    """Return colour and marker of a row's technique."""
    technique = msgspec.to_builtins(advice.known[row.name].candidate.plan.technique)
    return identity.technique(identity.technique_of({"program": None, "technique": technique}))


def _ranking(axes: Axes, advice: Advice, rows: list[Row]) -> None:
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
    axes.set_xlim(left=0)
    wanted = "a sample" if advice.goal.accuracy is None else f"{target(advice.goal.accuracy)} accuracy"
    axes.set_title(f"To {wanted}, 90 % intervals")
    axes.set_xlabel(_TITLES.get(advice.goal.least, "time (s)") + "; ▷: at least so much")


def _pareto(axes: Axes, advice: Advice, rows: list[Row]) -> None:
    """Time against bytes; a line joins the techniques that no other one beats in both."""
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
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: numbers.short(value)))
    axes.margins(x=0.15)
    axes.set_ylim(bottom=0)
