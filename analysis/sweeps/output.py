"""The comparison of a sweep as tables: one row per point in CSV and LaTeX, one row per run in CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from analysis.compare import LONG_LABEL, fitting, in_a_column, latex_text, save
from analysis.confidence import Ratio
from analysis.figures.sweep import draw
from analysis.report.sweep import page
from analysis.sweeps.conclusion import measure_of
from analysis.sweeps.points import Case, Point
from analysis.sweeps.stored import SweepComparison
from testbed import numbers
from testbed.results import atomic
from testbed.target import ACCURACY, learning_of


def write(compared: SweepComparison, out: Path, columns: int = 2) -> list[Path]:
    """Write ``comparison.csv``, ``.tex``, ``.png``, ``.pdf``, ``.html`` and ``comparison-runs.csv``; return the paths.

    columns  how many columns of a paper the figure and the LaTeX table fill: 1 or 2
    """
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "comparison.csv": by_point(compared).to_csv(index=False),
        "comparison-runs.csv": pd.DataFrame(compared.rows).to_csv(index=False),
        "comparison.tex": as_latex(compared) if columns > 1 else in_a_column(as_latex(compared)),
        "comparison.html": page(compared),
    }
    for name, text in texts.items():
        atomic.write_text(out / name, text)
    figure = draw(compared, columns)
    return [*(out / name for name in texts), *(save(figure, out / f"comparison.{form}") for form in ("png", "pdf"))]


def pictures(compared: SweepComparison, out: Path, name: str) -> list[Path]:
    """Write the figure as ``<name>.png``, ``.svg`` and ``.pdf``; return the paths."""
    out.mkdir(parents=True, exist_ok=True)
    figure = draw(compared)
    return [save(figure, out / f"{name}.{form}") for form in ("png", "svg", "pdf")]


COMPARED = ("time_to_target_s", "round_time_s", "step_time_s", "training_s", "wan_bytes")
"""Measures that are also given as ratios to the base."""
MEASURES = ("accuracy", "accuracy_at_target", "loss", "loss_at_target", *COMPARED, "samples_per_s", "waiting_share")


def by_point(compared: SweepComparison) -> pd.DataFrame:
    """Return one row per point: settings, runs, medians over seeds, and ratios to the base with their interval."""
    rows = [_point(case, point) for case in compared.cases for point in case.points]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _point(case: Case, point: Point) -> dict[str, Any]:
    row: dict[str, Any] = {
        "case": case.told or None,
        "point": point.label,
        **point.settings,
        "base": case.base.label,
        "runs": len(point.rows),
        "completed": len(point.completed),
        "reached_target": len(point.values("time_to_target_s")),
    }
    for measure in MEASURES:
        values = point.values(measure)
        row[measure] = median(values) if values else None
        if measure in COMPARED:
            ratio = point.ratio(case.base, measure)
            row |= {
                f"{measure}_ratio": ratio.value if ratio else None,
                f"{measure}_ratio_low": ratio.low if ratio and ratio.count > 1 else None,
                f"{measure}_ratio_high": ratio.high if ratio and ratio.count > 1 else None,
            }
    return row


_DECISIVE = {
    "time_to_target_s": ("to target", "s", 1.0),
    "step_time_s": ("step", "ms", 1e3),
    "training_s": ("run", "s", 1.0),
}
"""The heading, unit and factor of each decisive measure in the LaTeX table."""


def as_latex(compared: SweepComparison) -> str:
    """Return a ``tabular`` with two rows per point: medians, and below them seeds and ratios with 95 % intervals.

    Its columns are accuracy or loss, the decisive measure, and bytes: a page has no room for more. ``by_point`` has all
    measures.
    """
    decisive = measure_of(compared.cases, compared.target)
    heading, unit, factor = _DECISIVE[decisive]
    bases = [*dict.fromkeys(case.base.label for case in compared.cases)]
    base = latex_text(bases[0]) if len(bases) == 1 and len(bases[0]) <= LONG_LABEL else "base"
    measure = learning_of(compared.target)
    heads = [
        ["", measure, f"{heading} ({unit})", "WAN (MB)"],
        ["", r"at end (\%)" if measure == ACCURACY else "at end", rf"$\times$ {base}", rf"$\times$ {base}"],
    ]
    learned = (measure, 100.0 if measure == ACCURACY else 1.0)
    shown = ((decisive, factor), ("wan_bytes", 1e-6))
    rows = []
    for case in compared.cases:
        if case.told:
            rows.append([_spanning(case.told, len(heads[0]))])
        for point in case.points:
            below = [rf"\footnotesize {cell}" if cell else "" for cell in _ratios(case, point, shown)]
            rows += [list(_medians(point, (learned, *shown))), below]
    note = (
        f"medians over seeds; ratios to {', '.join(bases)} of the same seed, with 95 % intervals; "
        "WAN: of whole runs, rounds after the target included"
    )
    return fitting(heads, rows, note)


def _spanning(text: str, columns: int) -> str:
    """Return a cell that spans all columns; a long text is broken into lines."""
    where = r"@{}p{0.9\linewidth}@{}" if len(text) > 4 * LONG_LABEL else "@{}l@{}"
    return rf"\multicolumn{{{columns}}}{{{where}}}{{\raggedright\emph{{{latex_text(text)}}}}}"


def _medians(point: Point, shown: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield latex_text(point.label)
    for measure, factor in shown:
        values = point.values(measure)
        yield numbers.short(median(values) * factor) if values else "--"


def _ratios(case: Case, point: Point, shown: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield numbers.counted(len(point.completed), "seed")
    yield ""
    for measure, _ in shown:
        ratio = point.ratio(case.base, measure)
        yield "1" if ratio and point is case.base else _ratio(ratio)


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "--"
    if ratio.count == 1:
        return numbers.short(ratio.value)
    return f"{numbers.short(ratio.value)} [{numbers.short(ratio.low)}, {numbers.short(ratio.high)}]"
