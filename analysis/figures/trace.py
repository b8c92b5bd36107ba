"""The figure of a trace: its values over time, and the share of the time at or below each value."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import panels
from analysis.identity import series
from topologies.traces import Trace
from topologies.traces.change import steps_of, summary

UNITS = {"rate": ("Mbit/s", 1e6), "delay": ("ms", 1e-3), "loss": ("%", 1e-2)}
_NAMES = {"rate": "rate", "delay": "one-way delay", "loss": "loss"}


def draw(trace: Trace, title: str, subtitle: str = "") -> Figure:
    with panels.style():
        figure = panels.PaperFigure(figsize=(11, 3.9), layout="constrained")
        over_time, shares = figure.subplots(1, 2, width_ratios=(3.2, 1))
        unit, scale = UNITS[trace.what]
        _over_time(over_time, trace, unit, scale)
        _shares(shares, trace, unit, scale)
        figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold")
        over_time.set_title(subtitle, fontsize=8.5, fontweight="normal", color=panels.MUTED)
        return figure


def _over_time(axes: Axes, trace: Trace, unit: str, scale: float) -> None:
    in_hours = trace.length_s > 7200
    unit_s = 3600.0 if in_hours else 1.0
    edges = np.array([*trace.times_s, trace.length_s]) / unit_s
    values = np.array(trace.values) / scale
    look = series(0)
    axes.stairs(values, edges, color=look.color, linewidth=1.1 if len(values) > 200 else 1.7, baseline=None)
    axes.stairs(values, edges, color=look.color, alpha=0.12, fill=True)
    mean = summary(trace).mean / scale
    axes.axhline(mean, color=series(1).color, linewidth=1.1, linestyle="--")
    axes.annotate(
        f"mean {mean:.3g}",
        (1, mean),
        (-3, 3),
        xycoords=("axes fraction", "data"),
        ha="right",
        fontsize=8,
        textcoords="offset points",
        color=series(1).color,
    )
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, None)
    axes.set_xlabel("time (h)" if in_hours else "time (s)")
    axes.set_ylabel(f"{_NAMES[trace.what]} ({unit})")


def _shares(axes: Axes, trace: Trace, unit: str, scale: float) -> None:
    steps: Any = sorted((value / scale, duration) for duration, value in steps_of(trace))
    values = np.array([value for value, _ in steps])
    shares = np.cumsum([duration for _, duration in steps]) / sum(duration for _, duration in steps)
    axes.step([values[0], *values], [0, *shares * 100], where="post", color=series(0).color)
    axes.set_ylim(0, 100)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"{_NAMES[trace.what]} ({unit})")
    axes.set_ylabel("% of the time at or below")
