"""From finished runs to files: CSV, PNG, SVG, PDF and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from analysis.compare import latex_text
from analysis.figures import panels
from analysis.figures.papers.base import PaperFigure, Sample, published
from testbed.results import atomic

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("png", "svg", "pdf")


def produce(
    name: str, figure: PaperFigure, samples: Sequence[Sample], left_out: dict[str, str], out: Path
) -> dict[str, Any]:
    """Write ``<name>.csv|png|svg|pdf``, the table if there is one, and ``verdict.json``; returns the verdict.

    ``left_out``: series that this release cannot run, with the reason; they are listed in the verdict.
    """
    assert figure.derive and figure.draw and figure.check
    out.mkdir(parents=True, exist_ok=True)
    frame = figure.derive(samples)
    with atomic.replacing(out / f"{name}.csv") as temporary:
        frame.to_csv(temporary, index=False)
    if figure.table:
        _write_table(figure.table(frame), out / f"{name}-table")
    known = published(name)
    with panels.style():
        picture = Figure(figsize=figure.size_in, layout="constrained")
        figure.draw(picture, frame, known)
        for form in FORMATS:
            with atomic.replacing(out / f"{name}.{form}") as temporary:
                picture.savefig(temporary, format=form, bbox_inches="tight", metadata=_metadata(form))
    verdict = _verdict(name, figure, frame, samples, left_out)
    atomic.write_json(out / "verdict.json", verdict)
    return verdict


def _write_table(table: pd.DataFrame, stem: Path) -> None:
    """``.csv`` and ``.tex`` (a tabular for booktabs; missing values are dashes)."""
    atomic.write_text(stem.with_suffix(".csv"), table.to_csv(index=False))
    atomic.write_text(stem.with_suffix(".tex"), as_latex(table))


def as_latex(table: pd.DataFrame) -> str:
    """Any table as a ``tabular``: text on the left, numbers on the right with four digits."""
    numeric = [kind.kind in "if" for kind in table.dtypes]
    lines = [" & ".join(latex_text(str(name)) for name in table.columns)]
    for row in table.itertuples(index=False):
        lines.append(" & ".join(_latex_cell(value) for value in row))
    head, *body = [line + r" \\" for line in lines]
    columns = "".join("r" if is_number else "l" for is_number in numeric)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule",
                      r"\end{tabular}"]) + "\n"  # fmt: skip


def _latex_cell(value: Any) -> str:
    if isinstance(value, float):
        return "--" if math.isnan(value) else f"{value:.4g}"
    return "--" if value is None else latex_text(str(value))


def _metadata(form: str) -> dict[str, Any]:
    """Nothing that changes from one making to the next."""
    return {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]


def _verdict(
    name: str, figure: PaperFigure, frame: Any, samples: Sequence[Sample], left_out: dict[str, str]
) -> dict[str, Any]:
    assert figure.check
    found = figure.check(frame)
    runs = {sample.run.plan["back_end"] for sample in samples}
    return {
        "schema_version": 1,
        "figure": name,
        "title": figure.title,
        "source": figure.source,
        "back_ends": sorted(runs),
        "runs": len(samples),
        "code": sorted({str(sample.run.manifest.get("testbed", {}).get("git_commit")) for sample in samples}),
        "left_out": left_out,
        "summary": {state: sum(each.verdict == state for each in found) for state in ("pass", "fail", "not resolved")},
        "assertions": [
            {"claim": each.claim, "measured": each.measured, "verdict": each.verdict, "why": each.why} for each in found
        ],
    }
