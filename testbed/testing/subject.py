"""Finds the technique to check by its kind, on the axis from whose base class it derives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.axes import Axis, AxisError, names_code
from testbed.errors import ScenarioError
from testbed.plan import code
from topologies.readers import READERS
from topologies.text_file import TextFile
from topologies.traces import FORMATS

AXES: dict[str, Axis[Any]] = {**code.AXES, READERS.name: READERS, FORMATS.name: FORMATS}


@dataclass(frozen=True, slots=True)
class Subject:
    """A technique to check.

    values  options that differ from their defaults. A trace format reads by default the first quantity that it
            ``holds``
    file    the file for a topology reader or trace format; ``None`` for other techniques
    """

    axis: Axis[Any]
    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    file: TextFile | None = None

    @property
    def entry(self) -> type[Any]:
        """The class of the technique."""
        return self.axis[self.kind]

    @property
    def axis_name(self) -> str:
        return self.axis.name

    @property
    def options(self) -> Any:
        read = {"what": self.entry.holds[0]} if self.axis is FORMATS and self.entry.holds else {}
        return self.axis.options(self.kind, {**read, **self.values})


def find(kind: str, axis: str = "", values: Mapping[str, Any] | None = None) -> Subject:
    """Return the technique ``kind``, and import its code. A file is relative to the working directory.

    Without ``axis``, all axes are searched. Raise ``AxisError`` if no axis, or more than one, has the technique.
    """
    found: list[Subject] = []
    problems: list[AxisError] = []
    for candidate in [AXES[axis]] if axis else AXES.values():
        try:
            whole = candidate.resolve(kind, Path.cwd(), "the working directory")
            if names_code(whole) and not axis and not candidate.derives(whole):
                continue
            candidate[whole]
        except AxisError as problem:
            problems.append(problem)
        else:
            found.append(Subject(candidate, whole, values or {}))
    if len(found) == 1:
        return with_file(found[0])
    if found:
        names = ", ".join(subject.axis.name for subject in found)
        raise AxisError(
            f"'{kind}' is on the axes {names}", f"choose one with --axis, such as --axis {names.split(',')[0]}"
        )
    if problems and (axis or names_code(kind)):
        raise problems[0]
    if kind.endswith(".py"):
        raise AxisError(f"'{kind}' names a file, but no class in it", f"write {kind}:CLASS")
    raise AxisError(
        f"'{kind}' is not a technique of any axis", f"derive from a base class of {', '.join(AXES)}; see docs/axes"
    )


def with_file(subject: Subject, path: Path | None = None) -> Subject:
    """Return the subject with the file that it reads: ``path``, or the class' sample. Raise ``ScenarioError``."""
    if subject.axis not in (READERS, FORMATS):
        if path is not None:
            raise ScenarioError(f"--file {path}: has no effect on the axis {subject.axis_name}; leave it out")
        return subject
    return replace(subject, file=TextFile.read(path) if path else TextFile.of("sample", subject.entry.sample))
