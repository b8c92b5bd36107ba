"""Finds a study by its name, or one from elsewhere by its place."""

from __future__ import annotations

import difflib

from analysis.studies import STUDIES
from analysis.studies.study import Study
from testbed.axes import import_code, installed
from testbed.errors import ScenarioError


def find(name: str) -> tuple[str, Study]:
    """Return the name of a study's files, and the study.

    ``name`` is one of ``STUDIES``, an entry point in the group ``testbed.figure``, ``package.module:NAME`` or
    ``FILE.py:NAME``. The object there is a ``Study``, or a class or function that returns one. Raise ``ScenarioError``.
    """
    found = import_code(STUDIES.get(name, name), installed("figure").get(name))
    if found is None:
        close = difflib.get_close_matches(name, STUDIES, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        known = ", ".join([*STUDIES, *installed("figure")])
        raise ScenarioError(f"figure {name}: unknown; {meant}It is one of {known}, package.module:NAME or FILE.py:NAME")
    study = found() if callable(found) and not isinstance(found, Study) else found
    if not isinstance(study, Study):
        raise ScenarioError(f"figure {name}: is no analysis.studies.study.Study")
    return name.rpartition(":")[2], study
