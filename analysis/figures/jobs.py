"""The figure of jobs that shared a network: the time of their rounds, and their rates on each link over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FuncFormatter

from analysis.figures import panels
from analysis.jobs import StoredJobs
from testbed import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

LINKS_SHOWN = 6
COLUMNS = 2
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
ALONE = "#C9CDD4"
BIN_S = 0.5
MOST_BINS = 200
_WIDTH_IN = 11.0
_TOP_IN = 0.9
_JOB_IN = 0.45
_ROW_IN = 1.7


def draw(stored: StoredJobs) -> Figure:
    """Return the figure of a run with several jobs, at least one of which has completed rounds."""
    with panels.style():
        names = _busiest(stored)
        rows = max(1, math.ceil(len(names) / COLUMNS))
        heights = [_TOP_IN + _JOB_IN * len(stored.jobs), 0.6 + rows * _ROW_IN]
        figure = panels.PaperFigure(figsize=(_WIDTH_IN, sum(heights)), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=heights)
        upper, lower = parts
        upper.suptitle(f"{stored.name}: time of a round", x=0.012, ha="left", fontsize=9.5, fontweight="bold")
        _rounds(upper.subplots(1, 1), stored)
        if names:
            _links(lower, stored, names, rows)
        return figure


def colour_of(stored: StoredJobs, job: str) -> str:
    return COLOURS[list(stored.jobs).index(job) % len(COLOURS)]


def _busiest(stored: StoredJobs) -> list[str]:
    """Return the links with the most bytes, sorted so that the two directions of a pair are beside each other."""
    totals: dict[str, int] = {}
    for job in stored.jobs:
        for link, sent in stored.sent(job).items():
            totals[link] = totals.get(link, 0) + sent
    shown = sorted(totals, key=lambda link: -totals[link])[:LINKS_SHOWN]
    return sorted(shown, key=lambda link: (sorted(link.split(">")), link))


def _rounds(axes: Axes, stored: StoredJobs) -> None:
    """Draw the mean round time of each job, and below it that of the same job alone."""
    ticks = []
    for place, (job, run) in enumerate(stored.jobs.items()):
        alone = stored.alone.get(job)
        offset = 0.2 if alone is not None else 0.0
        ticks.append(place)
        for each, at, colour in ((run, place - offset, colour_of(stored, job)), (alone, place + offset, ALONE)):
            time_s = each.result["round_time_s"] if each is not None and each.result is not None else None
            if time_s is None:
                continue
            axes.barh(at, time_s, height=0.36, color=colour)
            axes.text(
                time_s, at, f"  {numbers.seconds(time_s)}{' alone' if each is alone else ''}", va="center", fontsize=8
            )
    axes.set_yticks(ticks, list(stored.jobs))
    axes.invert_yaxis()
    axes.set_xlabel("s")
    axes.margins(x=0.12)
    axes.grid(False, axis="y")


def _links(figure: SubFigure, stored: StoredJobs, names: list[str], rows: int) -> None:
    figure.suptitle("messages over the links, by job", x=0.012, ha="left", fontsize=9.5, fontweight="bold")
    grid = figure.subplots(rows, COLUMNS, sharex=True, squeeze=False)
    spans = {job: stored.spans(job) for job in stored.jobs}
    end_s = max((float(each["t_s"].max()) for each in spans.values() if len(each)), default=BIN_S)
    edges = np.linspace(0.0, end_s, min(MOST_BINS, max(1, math.ceil(end_s / BIN_S))) + 1)
    links = stored.links()
    for axes, name in zip(grid.flat, names, strict=False):
        carried = [_rate_bps(spans[job], name, edges) for job in stored.jobs]
        colours = [colour_of(stored, job) for job in stored.jobs]
        middle = (edges[:-1] + edges[1:]) / 2
        axes.stackplot(middle, *carried, colors=colours, labels=list(stored.jobs), step="mid", linewidth=0)
        axes.axhline(links[name].rate_bps, color=panels.CONFIGURED, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_title(name, fontsize=8.5, loc="left")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g}"))
        axes.set_ylabel("Mbit/s")
        axes.set_ylim(0, 1.1 * links[name].rate_bps)
    for axes in grid.flat[len(names) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("run's clock (s)")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=len(labels), bbox_to_anchor=(0.99, 1.0), borderaxespad=0.1)


def _rate_bps(spans: Any, link: str, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean rate of messages over a link in each bin (bit/s).

    The bytes of a message are spread evenly over the time from its sending to its arrival.
    """
    across = spans[spans["link"] == link]
    total = np.zeros(len(edges))
    for begin_s, end_s, size_bytes in across[["t0_s", "t_s", "bytes"]].itertuples(index=False):
        total += size_bytes * np.clip((edges - begin_s) / max(end_s - begin_s, 1e-9), 0.0, 1.0)
    return 8 * np.diff(total) / np.diff(edges)
