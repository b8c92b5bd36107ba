"""The figure of several runs: accuracy or loss over time and over WAN bytes, and where the time of a round goes."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import identity
from analysis.breakdown import PARTS
from analysis.figures import panels
from analysis.identity import Identity
from analysis.load import StoredRun
from analysis.metrics import stands_for
from testbed import numbers
from testbed.results.summary import wan_bytes_of
from testbed.target import Target, learning_of

_WIDTH_IN = 11.0
_HEIGHT_IN = 3.3


def draw(runs: list[StoredRun], target: Target | None, columns: int = 2) -> Figure:
    """Draw one line and one bar per run that has completed rounds.

    columns  the width of the figure in columns of a paper, 1 or 2. With 1, the panels stand below each other
    """
    if any(run.program for run in runs):
        return _programs(runs, columns)
    shown = [run for run in runs if len(run.tables["rounds"])]
    looks = identity.of_runs([run.plan for run in shown])
    with panels.style(columns):
        height = _HEIGHT_IN + 0.22 * max(0, len(shown) - 6)
        if columns == 1:
            figure = panels.PaperFigure(
                figsize=(panels.WIDTHS_IN[1], 2 * _HEIGHT_IN + 0.16 * len(shown)), layout="constrained"
            )
            over_time, over_bytes, time = figure.subplots(3, 1)
        else:
            figure = panels.PaperFigure(figsize=(_WIDTH_IN, height + 0.3), layout="constrained")
            over_time, over_bytes, time = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
        for axes, over, name in ((over_time, "time_s", "time"), (over_bytes, "wan_bytes", "WAN traffic")):
            axes.set_title(f"{learning_of(target).capitalize()} over {name}")
            panels.learning(axes, shown, looks, over, target)
        over_bytes.set_ylabel("")
        _time(time, shown, looks, columns)
        handles, labels = over_time.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=min(len(labels), 5 if columns == 2 else 2))
        return figure


def _programs(runs: list[StoredRun], columns: int) -> Figure:
    """Draw one bar per run for its run time and WAN bytes, which are known of every program."""
    looks = identity.of_runs([run.plan for run in runs])
    results = [run.result or {} for run in runs]
    seconds = [result.get("training_s") or 0.0 for result in results]
    megabytes = [wan_bytes_of(result) / 1e6 for result in results]
    with panels.style(columns):
        width = panels.WIDTHS_IN[1] if columns == 1 else _WIDTH_IN
        figure = Figure(figsize=(width, 1.2 + 0.35 * len(runs)), layout="constrained")
        grid = figure.subplots(1, 2, sharey=True)
        for axes, title, values in zip(grid, ("run time (s)", "WAN bytes (MB)"), (seconds, megabytes), strict=True):
            bars = axes.barh(range(len(runs)), values, color=[look.color for look in looks])
            axes.bar_label(bars, fmt=numbers.short, padding=3, fontsize=8)
            axes.set_xlabel(title)
            axes.margins(x=0.15)
        grid[0].set_yticks(range(len(runs)), [look.label for look in looks])
        grid[0].invert_yaxis()
        return figure


def _time(axes: Axes, runs: list[StoredRun], looks: list[Identity], columns: int) -> None:
    axes.set_title("Where a round's time goes")
    known = [(run, look.label) for run, look in zip(runs, looks, strict=True) if run.logs_work]
    if not known:
        panels.without_split(axes)
        return
    panels.stacked_time(axes, [label for _, label in known], round_split([run for run, _ in known]))
    axes.set_xlabel(axes.get_xlabel() + ", workers")
    below = (-0.4, -0.36) if columns == 1 else (-0.02, -0.2)
    axes.legend(loc="upper left", bbox_to_anchor=below, ncols=4, handlelength=1, columnspacing=1.1)


def round_split(runs: list[StoredRun]) -> pd.DataFrame:
    """Return one row per run: the seconds per round, by part, as means over its workers.

    ``round_time_s`` is a mean over workers, too. So the parts add up to it even if some workers make more rounds.
    """
    columns = [f"{part}_s" for part in PARTS]
    rows = []
    for run in runs:
        workers = run.time_split.query("role == 'worker'")
        weights = workers["node"].map(stands_for(run))
        rows.append(workers[columns].mul(weights, axis=0).sum() / weights.sum())
    return pd.DataFrame(rows)
