"""Checks of a figure (``docs/axes/figure.md``): a complete declaration, valid scenarios, and a small run that draws."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.studies import drawing, engine
from analysis.studies.study import Request, Study
from analysis.studies.study import find as find_study
from testbed.errors import ScenarioError
from testbed.testing.verdict import CheckFailed, require

_LEAST_BYTES = 5000  # of a picture with axes


@dataclass(frozen=True, slots=True)
class CheckedFigure:
    """The subject of these checks: a study by its name, or by the place of its code."""

    kind: str
    axis_name: str = "figure"

    @property
    def study(self) -> Study:
        return find_study(self.kind)[1]

    @property
    def code_path(self) -> str:
        """The file of the study, empty for one by name."""
        place = self.kind.rpartition(":")[0]
        return str(Path(place).resolve()) if place.endswith(".py") else ""


def the_declaration_is_complete(figure: CheckedFigure) -> None:
    study = figure.study
    require(study.title and study.source, "a title and a source", f"{study.title!r}, {study.source!r}", "name both")
    require(study.parts or all(map(study.variants_of, study.cases)), "variants in every case", "none",
            "name them in variants=")  # fmt: skip
    require(study.panels, "at least one panel", "none", "add panels=(Panel(…),)")
    for panel in study.panels:
        kinds = (*drawing.KINDS, drawing.FOREST)
        require(panel.kind in kinds, f"a panel of kind {', '.join(kinds)}", repr(panel.kind), "choose one")
        require(
            panel.y or panel.kind in ("curve", drawing.FOREST), f"something to draw in panel '{panel.title}'", "no y",
            "name a column as y",
        )  # fmt: skip


def smallest(study: Study) -> Study:
    """Return the study with every variant at one value of each setting that varies, and one seed."""
    cases = {
        name: replace(case, varies={path: values[-1:] for path, values in case.varies.items()}, seeds=1)
        for name, case in study.cases.items()
    }
    return replace(study, cases=cases, rates=study.rates[-1:], parts=tuple(map(smallest, study.parts)))


def every_variant_is_a_valid_scenario(figure: CheckedFigure) -> None:
    study = figure.study
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as folder:
        try:
            jobs = list(engine.jobs(smallest(study), Request(Path(folder), on=study.on[:1])))
        except ScenarioError as error:
            raise CheckFailed(
                "scenarios without problems", str(error), "correct the settings of that variant"
            ) from error
    require(
        jobs and all(job.labelled for job in jobs),
        "runs in every sweep",
        f"{len(jobs)} sweeps",
        "add variants",
    )


def a_small_run_draws_and_decides(figure: CheckedFigure) -> None:
    """Simulate each variant once: panels have columns to draw, and claims values to decide by."""
    study = figure.study
    if "simulate" not in study.on:
        return
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as name:
        out = Path(name)
        engine.execute("figure", smallest(study), Request(out, on=("simulate",)))
        for form in engine.FORMATS:
            size_bytes = (out / f"figure.{form}").stat().st_size
            require(size_bytes > _LEAST_BYTES, f"a drawn figure.{form}", f"{size_bytes} bytes", "draw something")
        verdict = json.loads((out / "verdict.json").read_text())
    require(
        verdict["assertions"] or not (study.expected or study.claims),
        "claims with a verdict",
        "none",
        "yield a Claim for each",
    )


CHECKS = (the_declaration_is_complete, every_variant_is_a_valid_scenario)
RUNNING = (a_small_run_draws_and_decides,)
