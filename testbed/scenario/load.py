"""Reads YAML into a ``Scenario``, or reports all its mistakes, each with file, line and column."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Keys
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed import shipped
from testbed.axes import AxisError
from testbed.errors import ScenarioError
from testbed.facilities import BACK_ENDS
from testbed.scenario import overrides as override_language
from testbed.scenario import presets
from testbed.scenario.reading.declared import model_of
from testbed.scenario.reading.document import Mapping, Node, Scalar, parse, plain
from testbed.scenario.reading.files import read_document
from testbed.scenario.reading.keys import keys_at, keys_of
from testbed.scenario.reading.problems import Problem, lines_of, problem_at, problems_of
from testbed.scenario.reading.quantities import UNKNOWN
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules import violations_of
from testbed.scenario.schema import MODEL, Origin, Scenario
from testbed.scenario.topology.job import JobSection
from testbed.settings.job import Choice, Training
from testbed.settings.run import RunSection

_OF_ONE = ("topology", "training")  # required in a file without jobs


def load(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    on: str | None = None,
    sweeping: bool = False,
    allow_code: bool = False,
    folder: Path | None = None,
) -> Scenario:
    """Read a scenario file, or a shipped scenario by name. Raise ``ScenarioError`` with every problem.

    overrides   ``path=value`` texts
    on          back end that replaces the scenario's own before the rules are checked
    sweeping    whether to ignore a ``sweep`` section (``testbed.scenario.sweep`` reads it) instead of refusing it
    allow_code  whether a file outside the working directory may name code, which validation then imports
    folder      folder of the files that the scenario names; by default the folder of ``path``
    """
    path = shipped.path_of(path)
    root, allow_code = read_document(path), allow_code or may_name_code(path)
    return read_tree(root, overrides, on, Given(folder or path.parent, allow_code), sweeping=sweeping)


def may_name_code(path: Path) -> bool:
    """Return whether a file is the user's own: at or below the working directory, or shipped."""
    own = Path(os.path.realpath(path))  # ``resolve`` raises at a loop of links, which the reader refuses with a cure
    return own.is_relative_to(Path.cwd()) or own.is_relative_to(shipped.FOLDER)


def loads(
    text: str | bytes,
    name: str = "scenario.yaml",
    overrides: Sequence[str] = (),
    folder: Path | None = None,
    on: str | None = None,
) -> Scenario:
    """Do as ``load`` with text that the caller trusts. Messages call it ``name``; its files are in ``folder``."""
    return read_tree(parse(text, name), overrides, on, Given(folder, allow_code=True))


def moved(scenario: Scenario, on: str | None) -> Scenario:
    """Return the scenario for the back end ``on``. Raise ``ScenarioError`` if it breaks the rules there."""
    if on is None or on == scenario.run.on:
        return scenario
    if on not in BACK_ENDS:
        raise ScenarioError(f"--on: '{on}' is not one of {', '.join(BACK_ENDS)}")
    on_it = replace(scenario, run=RunSection(on=on))
    if found := violations_of(on_it):
        raise ScenarioError([f"--on {on}: {violation}" for violation in found])
    return on_it


@dataclass(frozen=True)
class Given:
    """What the reader knows about a scenario in addition to its tree.

    folder        folder of the files that the scenario names
    allow_code    whether the scenario may name code
    sections      sections that have been read already, by key; the tree keeps only their places in the file
    path_in_file  maps a path in the scenario to the path in its file, which may hold several scenarios
    """

    folder: Path | None
    allow_code: bool
    sections: Keys[str, Any] = field(default_factory=dict)
    path_in_file: Callable[[str], str] = str

    def lines(self, problems: list[Problem]) -> list[str]:
        """Return the problems as lines, with their paths in the file."""
        return lines_of([replace(each, path=each.path and self.path_in_file(each.path)) for each in problems])


def read_tree(
    root: Node, overrides: Sequence[str], on: str | None, given: Given, *, sweeping: bool = False
) -> Scenario:
    """Return the scenario in a document's tree. Changes the tree. Raise ``ScenarioError`` with every problem."""
    swept = None
    if isinstance(root, Mapping):
        where = root.keys.get("jobs")
        if where:
            cure = "`testbed run FILE` runs its jobs; for one of them, write a scenario of its own"
            raise ScenarioError(f"{where}: jobs: this command needs a scenario without 'jobs' ({cure})")
        root.entries.pop("sweep", None)
        swept = root.keys.pop("sweep", None)
    context: dict[str, Any] = {"folder": given.folder, "allow_code": given.allow_code, "code": [], "traces": []}
    mistakes, contradictions = _changed(root, overrides, context)
    if on is not None:
        mistakes += override_language.set_value(root, "run.on", on, f"--on {on}", _known())
    try:
        scenario = Scenario.read(_data(root, given), context)
        problems = [problem_at(root, found) for found in violations_of(scenario)]
    except ValidationError as error:
        problems = problems_of(error, root, MODEL) + _hidden(error, root, context, given)
    problems = contradictions or problems
    if mistakes or problems:
        raise ScenarioError(mistakes + given.lines(problems))
    if swept and not sweeping:  # after the mistakes, which `testbed sweep` would find, too
        cure = "start them with `testbed sweep`; `testbed validate` checks all of them"
        raise ScenarioError(f"{swept}: sweep: these are many runs; {cure}")
    code, traces = (tuple(dict.fromkeys(context[name])) for name in ("code", "traces"))
    return replace(scenario, origin=Origin(root, code, traces, given.path_in_file))


def _data(root: Node, given: Given) -> Any:
    """Return the data that the schema validates: the tree, with the sections that have been read already."""
    data = plain(root)
    return {**data, **given.sections} if isinstance(data, dict) else data


def set_in(root: Node, overrides: Sequence[str], on: str | None) -> list[str]:
    """Set values in a tree that has sections of a scenario but is not a whole one. Return the mistakes."""
    mistakes = override_language.apply(root, overrides, _known())
    if on is not None:
        mistakes += override_language.set_value(root, "run.on", on, f"--on {on}", _known())
    return mistakes


def _changed(root: Node, overrides: Sequence[str], context: dict[str, Any]) -> tuple[list[str], list[Problem]]:
    """Set the values of ``overrides``, then those of the preset if the scenario names one (``technique``).

    Return the mistakes in the overrides, and the problems of the preset.
    """
    naming = [text for text in overrides if text.partition("=")[0].strip() == presets.KEY]
    others = [text for text in overrides if text not in naming]
    mistakes = override_language.apply(root, naming, _known())
    named = root.entries.get(presets.KEY) if isinstance(root, Mapping) else None
    if not isinstance(root, Mapping) or not isinstance(named, Scalar) or named.is_null:
        return mistakes + override_language.apply(root, others, _known()), []
    try:
        name = named.text = presets.resolved(named.text, context["folder"])
        preset = presets.find_preset(name, context["allow_code"])
    except AxisError as error:
        return mistakes, [problem_at(root, Violation((presets.KEY,), error.problem, error.hint))]
    if naming:
        presets.remove_other_technique(root, preset)
    presets.fill(root, preset, named.where)
    mistakes += override_language.apply(root, others, _known())
    presets.fill(root, preset, named.where)
    return mistakes, [problem_at(root, found) for found in presets.contradictions(root, preset, name)]


def _hidden(error: ValidationError, root: Node, context: dict[str, Any], given: Given) -> list[Problem]:
    """Return the problems that other mistakes hide, because rules run only when all values are valid.

    So the rules run again, without the unknown keys and with samples in place of values that were refused or are
    missing. Problems with such a sample are not mistakes of the scenario and are left out.
    """
    data = _data(root, given)
    for detail in error.errors(include_url=False):
        if detail["loc"]:
            _replace(data, detail["loc"], remove=detail["type"] == "extra_forbidden")
    try:
        found = [problem_at(root, each) for each in violations_of(Scenario.read(data, context))]
    except ValidationError as second:
        found = problems_of(second, root, MODEL, only="rules")
    samples = {problem.path for problem in problems_of(error, root, MODEL)}
    return [problem for problem in found if problem.path not in samples]


def _replace(data: Any, path: tuple[Any, ...], remove: bool) -> None:
    for element in path[:-1]:
        if (isinstance(data, dict) and element in data) or (isinstance(data, list) and isinstance(element, int)):
            data = data[element]  # else pydantic's tag of a kind, or a key of a short form
    if remove and isinstance(data, dict):
        data.pop(path[-1], None)
    elif isinstance(data, dict) or (isinstance(data, list) and path[-1] in range(len(data))):
        data[path[-1]] = UNKNOWN


def completed(path: str) -> str:
    """Add the section that the path of a setting leaves out, so that all paths of one setting become equal."""
    return override_language.completed(path, _known())


@cache
def _known() -> override_language.Known:
    """Return the keys of each section, for paths that leave the section out, and the axes with their defaults.

    Paths into ``cluster`` must name it, as ``data_centers`` alone means that of the topology.
    """
    sections = {key: keys_at(MODEL, (key,)) for key in keys_of(MODEL) if key != "cluster"}
    axes = {
        f"{prefix}{each.name}": override_language.AxisDefault(each.default.kind, "tiers" in each.metadata)
        for prefix, section in (("", Scenario), ("training.", Training))
        for each in fields(section)
        if "axis" in each.metadata and isinstance(each.default, Choice)
    }
    return override_language.Known(sections, axes)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario, for completion and hover texts in an editor."""
    schema: dict[str, Any] = MODEL.model_json_schema()
    job = model_of(JobSection).model_json_schema()
    schema["$defs"] |= job.pop("$defs")
    job["additionalProperties"] = True  # and every section of a scenario
    schema["$defs"][JobSection.__name__] = job
    schema["properties"]["jobs"] = {
        "type": "object",
        "description": "Several jobs on one network, by name. Write settings of the network beside 'jobs'.",
        "additionalProperties": {"$ref": f"#/$defs/{JobSection.__name__}"},
    }
    of_one = [key for key in schema["required"] if key in _OF_ONE]
    schema["required"] = [key for key in schema["required"] if key not in of_one]
    schema["anyOf"] = [{"required": of_one}, {"required": ["jobs"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
