"""Draws the panels of a study: means with intervals over seeds, axes with units, published numbers as an overlay.

If a panel shows several back ends, lines show simulated runs, and markers those of the other back ends. Without a
simulation, lines show the first back end by name. Hatched bars show the other back ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import NullFormatter

from analysis.confidence import mean_of
from analysis.figures import panels
from analysis.identity import BACK_ENDS, Identity, series
from analysis.studies import verdict
from analysis.studies.claims import FAIL, PASS
from analysis.studies.results import Published, Results, by_back_end, made_on, select
from analysis.studies.study import Panel, Study
from testbed import numbers

Looks = Mapping[str, Identity]
INK = "#20242C"
PUBLISHED = "#B22222"
_LEGEND_WIDTH = 120  # characters in a row of the shared legend, for a figure of 9 inches


def draw(study: Study, results: Results) -> Figure:
    """Draw all panels. Below them stand a common legend, and published numbers that no panel shows."""
    figure = panels.PaperFigure(figsize=study.size_in, layout="constrained")
    columns = math.ceil(len(study.panels) / study.rows)
    widths = [panel.width for panel in study.panels[:columns]]
    grid = figure.subplots(study.rows, columns, width_ratios=widths, squeeze=False).flatten()
    for unused in list(grid)[len(study.panels) :]:
        unused.set_visible(False)
    shared: dict[str, Any] = {}
    for axes, panel in zip(grid, study.panels, strict=False):
        _panel(axes, panel, study, results)
        handles, labels = axes.get_legend_handles_labels()
        if panel.legend and handles:
            axes.legend(fontsize=7)
        elif not panel.legend:
            shared |= {label: handle for handle, label in zip(handles, labels, strict=True) if label not in shared}
    if shared:
        longest = max(map(len, shared)) + 6
        columns = max(1, min(len(shared), int(_LEGEND_WIDTH * study.size_in[0] / 9 / longest)))
        figure.legend(shared.values(), shared.keys(), loc="outside lower center", ncols=columns, handlelength=3.5)
    _footnote(figure, study, results.published)
    return figure


def _panel(axes: Axes, panel: Panel, study: Study, results: Results) -> None:
    axes.set_title(panel.title)
    looks = study.looks
    if panel.kind == FOREST:
        _forest(axes, study, results)
    else:
        rows = select(results.curves if panel.kind == "curve" else results.runs, panel.where)
        shown = {name: looks.get(name, series(place, name)) for place, name in enumerate(_names(rows, panel, looks))}
        KINDS[panel.kind](axes, rows, panel, shown)
        if panel.published:
            _overlay(axes, panel, [each for each in results.published if each.unit == panel.published], shown)
    for level, label in panel.levels.items():
        horizontal(axes, level, label)
    if panel.kind == "curve" and not panel.y:
        panels.learning_axis(axes, None)
    else:
        axes.set_ylabel(panel.y_label)
    over_time = panel.kind == "curve" and not panel.x
    for side in panel.log:
        log_axis(axes, side)
    axes.set_xlabel("training time (s)" if over_time else panel.x_label)
    low, high = panel.y_range
    if panel.y_range != (None, None):
        axes.set_ylim(bottom=low, top=high)


def _names(rows: pd.DataFrame, panel: Panel, looks: Looks) -> list[str]:
    """Return the series of a panel: first those in ``looks``, in its order."""
    present = [str(name) for name in rows[panel.series].dropna().unique()]
    known = [name for name in looks if name in present]
    return [
        name for name in [*known, *(name for name in present if name not in looks)] if name in (panel.only or present)
    ]


def values_of(rows: pd.DataFrame, expression: str) -> pd.Series[float]:
    """Return a column, or an expression of columns, as numbers."""
    return pd.to_numeric(rows[expression] if expression in rows else rows.eval(expression))


# ---- kinds of panels ------------------------------------------------------------------------------------------------


def _lines(axes: Axes, rows: pd.DataFrame, panel: Panel, looks: Looks) -> None:
    for name, look in looks.items():
        of_name = rows[rows[panel.series].astype(str) == name]
        points = of_name.assign(x_=values_of(of_name, panel.x), y_=values_of(of_name, panel.y))
        ran = made_on(points)
        for on, part in by_back_end(points):
            label = panel.labels.get(name, look.label if name in looks and look.label != name else name)
            style = _style(look, ran, on)
            line(axes, part, "x_", "y_", style, label if on == ran[0] else None)


def _style(look: Identity, ran: Sequence[str], on: str) -> Identity:
    """Return how to draw a series of back end ``on``: of several, the first has only lines, the others only markers."""
    if len(ran) < 2:
        return look
    first = on == ran[0]
    return Identity(look.label, look.color, "" if first else look.marker, look.line if first else "")


def line(axes: Axes, rows: pd.DataFrame, x: str, y: str, look: Identity, label: str | None = None) -> None:
    """Draw the mean over seeds at every ``x``, with its 95 % interval as a band if there are several seeds.

    If some seeds have no value, because they never reached a target, the mean is of the others, and their number is
    shown.
    """
    groups: Any = rows.groupby(x)
    known = [(float(at), group[y].dropna().tolist(), len(group)) for at, group in groups if group[y].notna().any()]
    if not known:
        return
    xs = [at for at, _, _ in known]
    means = [mean_of(values) for _, values, _ in known]
    axes.plot(
        xs,
        [mean.value for mean in means],
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        label=label,
        markeredgecolor="white",
        markeredgewidth=0.6,
    )
    if all(mean.count > 1 for mean in means):
        low, high = ([mean.value + side * mean.half_width for mean in means] for side in (-1, 1))
        axes.fill_between(xs, low, high, color=look.color, alpha=0.13, linewidth=0)
    for (at, values, seeds), mean in zip(known, means, strict=True):
        _some_only(axes, (at, mean.value), len(values), seeds, look.color)


def _some_only(axes: Axes, at: tuple[float, float], count: int, of: int, color: str = panels.MUTED) -> None:
    """Write the number of seeds beside a mean that is not over all seeds."""
    if count < of:
        axes.annotate(
            f"{count}/{of} seeds", at, (0, 11), textcoords="offset points", ha="center", fontsize=6.8, color=color
        )


def _curves(axes: Axes, rows: pd.DataFrame, panel: Panel, looks: Looks) -> None:
    """Draw one line per run; seeds after the first are faint. The defaults are accuracy over time."""
    ran = made_on(rows)
    for name, look in looks.items():
        of_name = rows[rows[panel.series].astype(str) == name]
        labelled = next(iter(made_on(of_name)), "")
        for on, runs in by_back_end(of_name):
            style = _style(look, ran, on)
            for seed, run in runs.groupby("seed"):
                first = seed == of_name["seed"].min()
                axes.plot(
                    values_of(run, panel.x or "at_s"),
                    values_of(run, panel.y or "at_accuracy"),
                    color=look.color,
                    linestyle=style.line,
                    marker=style.marker if style.line == "" else "",
                    markersize=3.5,
                    linewidth=1.4,
                    alpha=1 if first else 0.35,
                    label=look.label if first and on == labelled else None,
                )
    if "x" not in panel.log:
        axes.set_xlim(left=0)


def _bars(axes: Axes, rows: pd.DataFrame, panel: Panel, looks: Looks) -> None:
    """Draw one bar per series or, with ``x``, a group of bars for each value of ``x``."""
    if not panel.x:
        bars(axes, rows.assign(y_=values_of(rows, panel.y)), "y_", looks, panel)
        return
    groups = list(dict.fromkeys(rows[panel.x]))
    width = 0.8 / len(looks)
    ran = made_on(rows)
    for number, (name, look) in enumerate(looks.items()):
        of_name = rows[rows[panel.series].astype(str) == name].assign(y_=lambda all_: values_of(all_, panel.y))
        for place, group in enumerate(groups):
            at = place + (number - (len(looks) - 1) / 2) * width
            of_group = of_name[of_name[panel.x] == group]
            label = panel.labels.get(name, look.label) if not place else None
            for each, made_there in _beside(of_group, ran, at, 0.94 * width):
                _bar(axes, each, made_there["y_"].dropna().tolist(), look, label)
                label = None
    labels = [panel.labels.get(str(group), str(group)) for group in groups]
    _categories(axes, labels)


def bars(axes: Axes, rows: pd.DataFrame, y: str, looks: Looks, panel: Panel) -> None:
    """Draw one bar per series and back end: mean and interval over the seeds that have a value."""
    ran = made_on(rows)
    for place, (name, look) in enumerate(looks.items()):
        of_name = rows.loc[rows[panel.series].astype(str) == name]
        for each, made_there in _beside(of_name, ran, place, 0.68):
            values = made_there[y].dropna().tolist()
            if not values:
                continue
            top = _bar(axes, each, values, look)
            at = (each.at, top)
            value = numbers.short(sum(values) / len(values))
            axes.annotate(value, at, (0, 3), textcoords="offset points", ha="center", fontsize=7.5)
            _some_only(axes, at, len(values), len(made_there))
    axes.margins(y=0.14)  # room for the numbers above the bars
    _categories(axes, [panel.labels.get(name, look.label) for name, look in looks.items()])


class _Place(NamedTuple):
    """Position and width of a bar on the x axis. ``hatched``: it belongs to another back end than the first."""

    at: float
    width: float
    hatched: bool


def _beside(
    rows: pd.DataFrame, ran: Sequence[str], center: float, width: float
) -> Iterator[tuple[_Place, pd.DataFrame]]:
    """Yield the bar's place and the rows for each back end; the bars share ``width`` side by side."""
    for number, (_, made_there) in enumerate(by_back_end(rows, ran)):
        at = center + ((number + 0.5) / len(ran) - 0.5) * width
        yield _Place(at, width / len(ran), number > 0), made_there


def _bar(axes: Axes, place: _Place, values: Sequence[float], look: Identity, label: str | None = None) -> float:
    """Draw one bar with its interval over seeds. Return the upper end of the interval."""
    mean = mean_of(values) if values else None
    error = mean.half_width if mean and mean.count > 1 else None
    value = mean.value if mean else 0.0
    hatch, edge = ("///", "white") if place.hatched else (None, None)
    axes.bar(
        place.at,
        value,
        width=place.width,
        color=look.color,
        yerr=error,
        ecolor=INK,
        capsize=2,
        hatch=hatch,
        edgecolor=edge,
        label=label,
    )
    return value + (error or 0.0)


def _categories(axes: Axes, labels: Sequence[str]) -> None:
    crowded = sum(map(len, labels)) > 36
    axes.set_xticks(range(len(labels)), labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.grid(axis="x", visible=False)


def _points(axes: Axes, rows: pd.DataFrame, panel: Panel, looks: Looks) -> None:
    """Draw ``y`` as markers and ``model`` as a line, without a mean over seeds."""
    for name, look in looks.items():
        mine = rows[rows[panel.series].astype(str) == name].assign(x_=lambda all_: values_of(all_, panel.x))
        mine = mine.sort_values("x_")
        axes.plot(
            mine["x_"],
            values_of(mine, panel.y),
            linestyle="",
            marker=look.marker,
            color=look.color,
            markeredgecolor="white",
            markeredgewidth=0.5,
            label=panel.labels.get(name, look.label),
        )
        if panel.model:
            axes.plot(mine["x_"], values_of(mine, panel.model), color=look.color, linewidth=1.0, linestyle=look.line)


_TICKS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_COLORS = {PASS: "#009E73", FAIL: "#D55E00"}


def _forest(axes: Axes, study: Study, found: Results) -> None:
    """Draw the mean and interval of every expected factor, and a thick bar from the lower to the upper bound."""
    labels: list[str] = []
    known: list[float] = []
    for part in reversed(study.parts or (study,)):
        for expected in (each for each in reversed(part.expected) if not (each.points or each.alone)):
            for on in reversed(made_on(found.rows(sweep=expected.case))):
                runs = found.made(on)
                values = verdict.factors_of(part, runs, expected).values
                color = _COLORS.get(verdict.claim_of(part, runs, expected).verdict, "#E69F00")
                place = len(labels)
                ends = (max(expected.low, 0.05), min(expected.high, 50.0))
                axes.plot(ends, (place, place), color=color, alpha=0.18, linewidth=7, solid_capstyle="butt", zorder=1)
                if values:
                    mean = mean_of(values)
                    width = mean.half_width if mean.count > 1 else 0.0
                    axes.errorbar(
                        mean.value,
                        place,
                        xerr=width,
                        color=color,
                        marker="o",
                        markersize=5,
                        capsize=2.5,
                        zorder=3,
                        markeredgecolor="white",
                        markeredgewidth=0.6,
                    )
                others = [each for each in part.expected if each.case == expected.case and not each.points]
                which = f" ({expected.claim.split(':')[0]})" if len(others) > 1 else ""
                about = f"{part.technique}: " if part.technique else ""
                told = "" if on == "simulate" else f", {BACK_ENDS[on].label}"
                labels.append(f"{about}{expected.case}{which}{told}")
                known += values
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=7.5)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    log_axis(axes, "x")
    axes.grid(axis="y", visible=False)
    if known:
        axes.set_xlim(min(0.5, 0.8 * min(known)), max(2.5, 1.25 * max(known)))
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in _TICKS if low <= tick <= high])


KINDS = {"line": _lines, "curve": _curves, "bar": _bars, "points": _points}
FOREST = "forest"  # a kind of panel that shows claims instead of columns


# ---- overlays and axes ----------------------------------------------------------------------------------------------


def _overlay(axes: Axes, panel: Panel, known: Sequence[Published], looks: Looks) -> None:
    """Draw published numbers: over their bar, at their ``x``, or, without either, as horizontal lines."""
    bars_at: dict[str, float] = {}
    for number, name in enumerate(looks if panel.kind == "bar" else ()):
        if not panel.x:
            bars_at[name] = float(number)
            continue
        for place, tick in enumerate(axes.get_xticklabels()):
            at = place + (number - (len(looks) - 1) / 2) * 0.8 / len(looks)
            bars_at |= dict.fromkeys((f"{name} {tick.get_text()}", f"{tick.get_text()}, {name}"), at)
    label: str | None = "published, other hardware"
    for each in known:
        if each.series in bars_at or not math.isnan(each.x):
            x = bars_at.get(each.series, each.x)
            axes.plot(x, each.y, "D", color="white", markeredgecolor=PUBLISHED, markersize=5, label=label)
            label = None
            if math.isfinite(each.x):
                axes.annotate(each.series, (x, each.y), (5, 5), textcoords="offset points", fontsize=7.5)
        elif panel.kind != "bar":
            horizontal(axes, each.y, f"published: {each.series}")


def _footnote(figure: Figure, study: Study, known: Sequence[Published]) -> None:
    """Write published numbers that no panel shows at the bottom of the figure."""
    left = [each for each in known if each.unit not in {panel.published for panel in study.panels}]
    if left:
        told = ", ".join(f"{each.series} {each.y:g} {each.unit}" for each in left)
        text = f"Published, other hardware ({left[0].source}): {told}"
        if figure.legends:  # the legend is always the lowest element
            (legend,) = figure.legends
            legend.set_title(text, prop=FontProperties(size=7))
            legend.get_title().set_color(panels.MUTED)
        else:
            figure.text(0.01, -0.02, text, fontsize=7, color=panels.MUTED, va="top")


def horizontal(axes: Axes, y: float, label: str) -> None:
    """Draw a labelled horizontal line."""
    axes.axhline(y, color=panels.MUTED, linestyle=(0, (1, 1.6)), linewidth=1.0)
    where: Any = ("axes fraction", "data")
    style: Any = {"textcoords": "offset points", "fontsize": 6.8, "color": panels.MUTED}
    axes.annotate(label, (0.02, y), (0, 2), xycoords=where, **style)


def log_axis(axes: Axes, side: str) -> None:
    """Make the ``x`` or ``y`` axis logarithmic, with plain numbers."""
    (axes.set_xscale if side == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())
