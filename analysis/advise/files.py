"""Writes an advice as files: table, sentences, page, figure, and the scenarios of the best techniques."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analysis.advise.advice import BEST, Advice
from analysis.advise.conclusion import conclusion
from analysis.advise.output import frame
from analysis.figures.advice import draw
from analysis.report.advice import page
from testbed.errors import ScenarioError
from testbed.results import atomic
from testbed.scenario import Scenario, load
from testbed.scenario.edited import edited

TABLE = "advice.csv"
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """The file of the user's scenario, and the ``overrides`` (texts ``path=value``) that the user gave with it."""

    path: Path
    overrides: Sequence[str] = ()


def write(advice: Advice, out: Path, own: OwnFile | None = None) -> list[Path]:
    """Write ``advice`` as CSV, text, HTML, PNG and PDF, and the best scenarios as ``1-NAME.yaml`` …; return the paths.

    If possible, a scenario is the user's own file with edited lines; otherwise it is written in full. The files of an
    earlier advice in ``out`` are removed first.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in earlier(out):
        path.unlink()
    atomic.write_text(out / TABLE, frame(advice).to_csv(index=False))
    atomic.write_text(out / "advice.txt", "\n".join(conclusion(advice)) + "\n")
    atomic.write_text(out / "advice.html", page(advice))
    files = [out / TABLE, out / "advice.txt", out / "advice.html"]
    if advice.ranked:
        figure = draw(advice)
        for form in ("png", "pdf"):
            with atomic.replacing(out / f"advice.{form}") as temporary:
                figure.savefig(temporary, format=form)
            files.append(out / f"advice.{form}")
    rows = {row.name: row for row in advice.rows}
    for place, (name, scenario) in enumerate(advice.scenarios().items(), 1):
        path = out / _scenario_file(place, name)
        if own is None or not _is_edited(own, advice.changes(rows[name]), path, scenario):
            atomic.write_text(path, scenario.to_yaml())
        files.append(path)
    return files


def earlier(out: Path) -> list[Path]:
    """Return the files of an earlier advice in ``out``: its table names the scenarios."""
    table = out / TABLE
    if not table.exists():
        return []
    names = pd.read_csv(table)["name"][:BEST]
    scenarios = [out / _scenario_file(place, name) for place, name in enumerate(names, 1)]
    pages = [out / f"advice.{form}" for form in ("csv", "txt", "html", "png", "pdf")]
    return [path for path in [*pages, *scenarios] if path.exists()]


def _scenario_file(place: int, name: str) -> str:
    return f"{place}-{file_name(name)}.yaml"


def _is_edited(own: OwnFile, changes: Sequence[str], path: Path, wanted: Scenario) -> bool:
    """Write the user's file with the changes to ``path``, and copy the files that it names beside it.

    Return whether the written file is the scenario ``wanted``.
    """
    text = edited(own.path, [*own.overrides, *changes])
    if text is None:
        return False
    for file in text.files:
        copy = path.parent / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or not copy.samefile(text.folder / file):
            shutil.copyfile(text.folder / file, copy)
    atomic.write_text(path, text.text)
    try:
        return load(path, allow_code=True) == wanted
    except ScenarioError:
        return False


def file_name(name: str) -> str:
    """Return a technique's name without the characters that a file name should not have."""
    return _NO_FILE_NAME.sub("-", name).strip("-")
