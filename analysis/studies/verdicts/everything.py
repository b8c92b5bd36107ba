"""All techniques in one table and one figure: technique, claim, back end, verdict."""

from __future__ import annotations

from analysis.studies.verdicts import rounds, training
from analysis.studies.verdicts.comparison import TwinComparison, study_of

ALL = tuple(
    value for module in (rounds, training) for value in vars(module).values() if isinstance(value, TwinComparison)
)
STUDY = study_of(ALL, "Every technique beside its twin without it", "scenarios/verdicts")
