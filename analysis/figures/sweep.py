"""The figure of a sweep: accuracy with its spread over seeds, ratios to the base with intervals, time of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import identity
from analysis.figures import panels
from analysis.figures.compare import round_split
from analysis.identity import Identity
from analysis.load import StoredRun
from analysis.metrics import accuracy_curve
from analysis.sweeps.conclusion import measure_of
from analysis.sweeps.points import Case, Point
from analysis.sweeps.stored import SweepComparison
from testbed import numbers
from testbed.target import ACCURACY, Target, learning_of

CASES_DRAWN = 6
_WIDTH_IN = 11.0
_HEIGHT_IN = 3.1
_LONGEST_LABEL = 20  # most characters of the base's label below a panel, as four panels stand in a row
_PLACES = 200  # number of points of a mean curve
_INK = "#20242C"
_ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
_MEASURES = {
    "time_to_target_s": "Time to {target}",
    "step_time_s": "Time of a step",
    "training_s": "Run time",
    "wan_bytes": "WAN bytes",
}

Looks = Mapping[str, Identity]


def draw(compared: SweepComparison, columns: int = 2) -> Figure:
    """Draw accuracy over time and over WAN bytes, and ratios to the base, with one row per case.

    A single case also gets the time of a round by part.

    columns  the width of the figure in columns of a paper, 1 or 2. With 1, the panels stand below each other
    """
    cases = compared.cases[:CASES_DRAWN]
    with panels.style(columns):
        grid = [[_name(number, panel) for panel in _panels(compared, case)] for number, case in enumerate(cases)]
        widest = max((len(point.label) for case in cases for point in case.points), default=0)
        if columns == 1:
            layout: Any = [[name] for row in grid for name in row]
            size = (panels.WIDTHS_IN[1], 0.4 + 1.75 * len(layout))
        else:
            layout = [row for each in grid for row in _rows(each, len(cases))]
            size = (_WIDTH_IN + 0.05 * max(0, widest - 12), 0.5 + _HEIGHT_IN * len(layout))
        figure = panels.PaperFigure(figsize=size, layout="constrained")
        axes = figure.subplot_mosaic(layout)
        known: dict[str, Any] = {}
        for number, case in enumerate(cases):
            looks = looks_of(compared, case)
            for panel in _panels(compared, case):
                place = axes[_name(number, panel)]
                _panel(place, panel, compared, case, looks)
                if panel == "split":
                    below = (0.4, -0.16) if columns == 2 else (0.35, -0.32)
                    place.legend(loc="upper center", bbox_to_anchor=below, ncols=4, handlelength=1, columnspacing=1.1)
                if case.told:
                    place.set_title(f"{place.get_title(loc='left')}\n{case.told}")
            if (first := axes.get(_name(number, "time"))) is not None:
                handles, labels = first.get_legend_handles_labels()
                known |= dict(zip(labels, handles, strict=True))
        if known:
            across = (len(known) if len(known) < 8 and max(map(len, known)) < 16 else 4) if columns == 2 else 2
            figure.legend(known.values(), known.keys(), loc="outside upper left", ncols=across)
        return figure


def _panels(compared: SweepComparison, case: Case) -> list[str]:
    """Return the names of the panels of a case, without those for which its runs have no data."""
    runs = [run for point in case.points for run in compared.runs_of(point)]
    scored = any(run.tables["accuracy"]["accuracy"].notna().any() for run in runs)
    split = len(compared.cases) == 1 and any(run.program is None and run.logs_work for run in runs)
    compares = len(case.points) > 1 or not (scored or split)
    decisive = measure_of(compared.cases, compared.target)
    return [
        *(["time", "bytes"] if scored else []),
        *([decisive, "wan_bytes"] if compares else []),
        *(["split"] if split else []),
    ]


def _rows(names: list[str], cases: int) -> list[list[str]]:
    """Return the rows of the layout for the panels of one case: curves above the others, or all in one row."""
    if cases > 1 or len(names) < 4:
        return [names]
    curves = names[:2]
    others = names[2:]
    across = 2 * len(others)
    return [
        [name for name in curves for _ in range(across // 2)],
        [name for name in others for _ in range(2)],
    ]


def _name(number: int, panel: str) -> str:
    return f"{number} {panel}"


def _panel(axes: Axes, panel: str, compared: SweepComparison, case: Case, looks: Looks) -> None:
    if panel == "time":
        axes.set_title(f"{learning_of(compared.target).capitalize()} over time")
        curves(axes, compared, case, looks, "time_s")
    elif panel == "bytes":
        axes.set_title(f"{learning_of(compared.target).capitalize()} over WAN traffic")
        curves(axes, compared, case, looks, "wan_bytes")
        axes.set_ylabel("")
    elif panel == "split":
        axes.set_title("Where a round’s time goes")
        split(axes, compared, case)
    else:
        axes.set_title(title_of(panel, compared.target))
        ratios(axes, case, looks, panel)


def title_of(measure: str, target: Target | None) -> str:
    return _MEASURES[measure].format(target="" if target is None else target.name)


def looks_of(compared: SweepComparison, case: Case) -> dict[str, Identity]:
    """Return the look of each point with completed runs, by its label."""
    known = [(point, compared.runs_of(point)) for point in case.points if point.completed]
    looks = identity.of_points([runs[0].plan for _, runs in known], [point.label for point, _ in known])
    return {look.label: look for look in looks}


def curves(axes: Axes, compared: SweepComparison, case: Case, looks: Looks, over: str) -> None:
    """Draw the mean score of each point over ``time_s`` or ``wan_bytes``, in a band from the lowest to the highest
    seed."""
    factor = 1.0 if over == "time_s" else 1e-6
    longest = 1e-3
    for point in case.points:
        found = mean_curve(compared.runs_of(point), over, learning_of(compared.target))
        if found is None:
            continue
        places = found[0] * factor
        scores = found[1]
        look = looks[point.label]
        panels.curve(axes, places, scores.mean(axis=0), look)
        axes.fill_between(places, scores.min(axis=0), scores.max(axis=0), color=look.color, alpha=0.14, linewidth=0)
        longest = max(longest, float(places[-1]))
    panels.learning_axis(axes, compared.target)
    if over == "time_s":
        panels.time_axis(axes, longest * 1.03)
    else:
        axes.set_xlabel("tensors sent over the WAN (MB)")
        axes.set_xlim(0, longest * 1.03)


def mean_curve(runs: Sequence[StoredRun], over: str, measure: str = ACCURACY) -> tuple[Any, Any] | None:
    """Return values of ``over`` (n), and ``measure`` of each seed there (seeds x n), linear between evaluations.

    ``None`` if no run was evaluated. The values begin where all seeds have been evaluated. A seed that ended because it
    reached the target keeps its last score; otherwise the mean would become that of the slower seeds.
    """
    found = [(scores[over].to_numpy(dtype=float), scores[measure].to_numpy()) for scores in map(accuracy_curve, runs)]
    found = [(places, scores) for places, scores in found if len(places)]
    if not found:
        return None
    begin = max(float(places[0]) for places, _ in found)
    end = max(float(places[-1]) for places, _ in found)
    grid = np.linspace(begin, max(begin, end), _PLACES)
    return grid, np.stack([np.interp(grid, places, scores) for places, scores in found])


def ratios(axes: Axes, case: Case, looks: Looks, measure: str) -> None:
    """Draw one bar per point: the ratio of its measure to the base's, paired by seed, with the 95 % interval.

    If the base lacks the measure, for example because it missed the target, the bars are medians, with a range from the
    lowest to the highest seed.
    """
    based = case.base.ratio(case.base, measure) is not None
    furthest = 0.0
    for place, point in enumerate(case.points):
        bar = _ratio(point, case.base, measure) if based else _median(point, measure)
        if bar is None:
            axes.annotate(
                _why_none(point, measure),
                (0, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color=panels.MUTED,
                bbox=_ON_WHITE,
                zorder=5,
            )
            continue
        value, low, high, told = bar
        error = [[value - low], [high - value]] if low < high else None
        axes.barh(place, value, height=0.62, color=looks[point.label].color, xerr=error, ecolor=_INK, capsize=2.5)
        axes.annotate(
            told, (high, place), (4, 0), textcoords="offset points", va="center", fontsize=7, bbox=_ON_WHITE, zorder=5
        )
        furthest = max(furthest, high)
    if based:
        axes.axvline(1, color=_INK, linewidth=0.8)
        base = case.base.label if len(case.base.label) <= _LONGEST_LABEL else "base"
        axes.set_xlabel(f"× {base}, seed by seed")
    else:
        axes.set_xlabel("median over seeds (s)")
    axes.set_yticks(range(len(case.points)), [point.label for point in case.points])
    axes.set_ylim(len(case.points) - 0.5, -0.5)
    axes.set_xlim(0, furthest * 1.7 or 1)  # room for the texts beside the bars
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


Bar = tuple[float, float, float, str]
"""The end of a bar, the lower and upper end of its interval, and the text beside it."""


def _ratio(point: Point, base: Point, measure: str) -> Bar | None:
    ratio = point.ratio(base, measure)
    if ratio is None:
        return None
    if ratio.count == 1 or point is base:
        return ratio.value, ratio.value, ratio.value, numbers.factor(ratio.value)
    told = f"{numbers.factor(ratio.value)} ({numbers.short(ratio.low)}–{numbers.short(ratio.high)})"
    return ratio.value, ratio.low, ratio.high, told


def _median(point: Point, measure: str) -> Bar | None:
    values = point.values(measure)
    if not values or len(values) < len(point.completed):
        return None
    middle = median(values)
    return middle, min(values), max(values), numbers.short(middle)


def _why_none(point: Point, measure: str) -> str:
    """Return the text that explains why a point has no bar."""
    if not point.completed:
        return "no run done"
    values = point.values(measure)
    if len(values) == len(point.completed):
        return "nothing to divide by"
    runs = f"{len(values)} of {len(point.completed)} seeds" if values else "no seed"
    return f"reached by {runs}" if measure == "time_to_target_s" else f"known of {runs}"


def split(axes: Axes, compared: SweepComparison, case: Case) -> None:
    """Draw one bar per point: the mean time of a round over all seeds, by part."""
    known = [(point.label, [run for run in compared.runs_of(point) if run.logs_work]) for point in case.points]
    means = [(label, round_split(runs).mean()) for label, runs in known if runs]
    panels.stacked_time(axes, [label for label, _ in means], pd.DataFrame([mean for _, mean in means]))
