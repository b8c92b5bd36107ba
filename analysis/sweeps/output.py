"""The comparison of a sweep as tables: one row per point in CSV and LaTeX, one row per run in CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from analysis.compare import latex_text, save, tabular
from analysis.confidence import Ratio
from analysis.figures.sweep import draw
from analysis.report.sweep import page
from analysis.sweeps.conclusion import measure_of
from analysis.sweeps.points import Case, Point
from analysis.sweeps.stored import SweepComparison
from testbed import numbers
from testbed.results import atomic


def write(compared: SweepComparison, out: Path, columns: int = 2) -> list[Path]:
    """Write ``comparison.csv``, ``.tex``, ``.png``, ``.pdf``, ``.html`` and ``comparison-runs.csv``; return the paths.

    ``columns``: how many columns of a paper the figure fills, 1 or 2.
    """
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "comparison.csv": by_point(compared).to_csv(index=False),
        "comparison-runs.csv": pd.DataFrame(compared.rows).to_csv(index=False),
        "comparison.tex": as_latex(compared),
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
"""Measures whose ratio to the base says something: all but shares."""
MEASURES = ("accuracy", "accuracy_at_target", *COMPARED, "samples_per_s", "waiting_share")


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


_COLUMNS = (  # of the LaTeX table: heading, measure, factor; with ratios, a page has no room for more
    ("accuracy (\\%)", "accuracy", 100.0),
    ("to target (s)", "time_to_target_s", 1.0),
    ("step (ms)", "step_time_s", 1e3),
    ("run (s)", "training_s", 1.0),
    ("WAN (MB)", "wan_bytes", 1e-6),
)


def as_latex(compared: SweepComparison) -> str:
    """Return one row per point as a ``tabular``: medians, and ratios to the base with their 95 % interval."""
    points = [point for case in compared.cases for point in case.points]
    known = [column for column in _COLUMNS if any(point.values(column[1]) for point in points)]
    decisive = measure_of(compared.cases, compared.target)
    shown = [(*column[:3], column[1] in (decisive, "wan_bytes")) for column in known]
    head = ["", "seeds"]
    for heading, _, _, has_ratio in shown:
        head += [heading, r"$\times$ base"] if has_ratio else [heading]
    rows = []
    for case in compared.cases:
        if case.told:
            rows.append([rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{latex_text(case.told)}}}}}"])
        rows += [list(_cells(case, point, shown)) for point in case.points]
    bases = ", ".join(dict.fromkeys(case.base.label for case in compared.cases))
    note = f"medians over seeds; ratios to {bases} of the same seed, with 95 % intervals"
    return tabular("l" + "r" * (len(head) - 1), head, rows, note)


def _cells(case: Case, point: Point, shown: list[tuple[str, str, float, bool]]) -> Iterator[str]:
    yield latex_text(point.label)
    yield str(len(point.completed))
    for _, measure, factor, has_ratio in shown:
        values = point.values(measure)
        yield numbers.short(median(values) * factor) if values else "--"
        if has_ratio:
            ratio = point.ratio(case.base, measure)
            yield "1" if ratio and point is case.base else _ratio(ratio)


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "--"
    if ratio.count == 1:
        return numbers.short(ratio.value)
    return f"{numbers.short(ratio.value)} [{numbers.short(ratio.low)}, {numbers.short(ratio.high)}]"
