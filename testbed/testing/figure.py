"""The contract of a figure (``docs/axes/figure.md``): a complete declaration, and valid scenarios."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from analysis.studies import drawing, engine
from analysis.studies.study import Request, Study
from testbed.errors import ScenarioError
from testbed.testing.requirement import Broken, require, requirement

_KINDS = (*drawing.KINDS, drawing.FOREST)
_WITHOUT_Y = ("curve", drawing.FOREST)


def smallest(study: Study) -> Study:
    """Return the study with every variant at one value of each setting that varies, and one seed."""
    cases = {
        name: replace(case, varies={path: values[-1:] for path, values in case.varies.items()}, seeds=1)
        for name, case in study.cases.items()
    }
    return replace(study, cases=cases, rates=study.rates[-1:], parts=tuple(map(smallest, study.parts)))


@requirement("name title and source, variants, and panels=(Panel(…),)")
def the_declaration_is_complete(study: Study) -> None:
    """A study has a title, a source, variants in every case, and panels of a known kind with a column to draw."""
    require(study.title and study.source, f"title {study.title!r}, source {study.source!r}")
    require(study.parts or all(map(study.variants_of, study.cases)), "a case without variants")
    require(study.panels, "no panel")
    for panel in study.panels:
        require(panel.kind in _KINDS, f"a panel of kind {panel.kind!r}", f"choose one of {', '.join(_KINDS)}")
        require(panel.y or panel.kind in _WITHOUT_Y, f"no y in panel '{panel.title}'", "name a column as y")


@requirement("correct the settings of that variant")
def every_variant_is_a_valid_scenario(study: Study) -> None:
    """Every variant, in every case, makes a valid scenario."""
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as folder:
        try:
            jobs = list(engine.jobs(smallest(study), Request(Path(folder), on=study.on[:1])))
        except ScenarioError as error:
            raise Broken(str(error)) from error
    require(jobs and all(job.labelled for job in jobs), f"{len(jobs)} sweeps, one without runs", "add variants")
