"""From finished runs to files: CSV, PNG, SVG, PDF and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.figures import panels
from analysis.figures.papers.base import PaperFigure, Sample, published
from testbed.results import atomic

FORMATS = ("png", "svg", "pdf")


def produce(
    name: str, figure: PaperFigure, samples: Sequence[Sample], left_out: dict[str, str], out: Path
) -> dict[str, Any]:
    """Write ``<name>.csv|png|svg|pdf`` and ``verdict.json`` to ``out``; returns the verdict.

    ``left_out``: series that this release cannot run, with the reason; they are listed in the verdict.
    """
    assert figure.derive and figure.draw and figure.check
    out.mkdir(parents=True, exist_ok=True)
    frame = figure.derive(samples)
    with atomic.replacing(out / f"{name}.csv") as temporary:
        frame.to_csv(temporary, index=False)
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
