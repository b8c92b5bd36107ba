"""Finds a study by its name, or one of the user's own by its place."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from analysis.studies import STUDIES
from analysis.studies.study import Study
from testbed.errors import ScenarioError


def find(name: str) -> tuple[str, Study]:
    """A study and the name of its files. ``name``: one of ``STUDIES``, ``package.module:NAME`` or ``file.py:NAME``.

    The object there is a ``Study``, or a class or function that makes one when it is called. Raises ``ScenarioError``.
    """
    if ":" not in name and name not in STUDIES:
        close = difflib.get_close_matches(name, STUDIES, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        known = ", ".join(STUDIES)
        raise ScenarioError(f"figure {name}: unknown (one of {known}, or package.module:NAME, or file.py:NAME){meant}")
    place = STUDIES.get(name, name)
    found = resolve(place)
    study = found if isinstance(found, Study) else found() if callable(found) else None
    if not isinstance(study, Study):
        raise ScenarioError(f"{place}: is no Study (analysis.studies.study.Study)")
    return name if name in STUDIES else place.rpartition(":")[2], study


def resolve(place: str) -> Any:
    """The object at ``package.module:NAME`` or ``path/file.py:NAME``. Raises ``ScenarioError`` if it is not there."""
    where, _, attribute = place.rpartition(":")
    try:
        module = _from_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except (ImportError, OSError) as error:
        raise ScenarioError(f"{place}: {error}") from error
    if not hasattr(module, attribute):
        raise ScenarioError(f"{place}: {where} has no {attribute}")
    return getattr(module, attribute)


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
