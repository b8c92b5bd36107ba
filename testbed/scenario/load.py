"""YAML to a ``Scenario``, or to all that is wrong with it, each with file, line and column."""

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

_OF_ONE = ("topology", "training")  # required where a file has no jobs


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
    on          back end instead of the scenario's own; the rules are those of this back end
    sweeping    ignore a ``sweep`` section (``testbed.scenario.sweep`` reads it), which is otherwise refused
    allow_code  whether a file outside the working directory may name code, which validation then imports
    folder      where files that it names are, by default its own
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
    """As ``load``, from text that the caller trusts; messages call it ``name``, files are looked up in ``folder``."""
    return read_tree(parse(text, name), overrides, on, Given(folder, allow_code=True))


def moved(scenario: Scenario, on: str | None) -> Scenario:
    """Return the scenario on the back end ``on``. Raise ``ScenarioError`` with what the rules find there."""
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
    """What is known of a scenario beside its tree.

    folder        where files that it names are
    allow_code    whether it may name code
    sections      that have been read already, by key; the tree has their places
    path_in_file  from a path in the scenario to the one that its file has, which may have several
    """

    folder: Path | None
    allow_code: bool
    sections: Keys[str, Any] = field(default_factory=dict)
    path_in_file: Callable[[str], str] = str

    def lines(self, problems: list[Problem]) -> list[str]:
        """Return the problems as lines, with whole paths."""
        return lines_of([replace(each, path=each.path and self.path_in_file(each.path)) for each in problems])


def read_tree(
    root: Node, overrides: Sequence[str], on: str | None, given: Given, *, sweeping: bool = False
) -> Scenario:
    """Return the scenario of a document's tree, which is changed. Raise ``ScenarioError`` with every problem."""
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
    """Return what the schema validates."""
    data = plain(root)
    return {**data, **given.sections} if isinstance(data, dict) else data


def set_in(root: Node, overrides: Sequence[str], on: str | None) -> list[str]:
    """Set values in a tree that is no scenario by itself, but has sections of one. Return the mistakes."""
    mistakes = override_language.apply(root, overrides, _known())
    if on is not None:
        mistakes += override_language.set_value(root, "run.on", on, f"--on {on}", _known())
    return mistakes


def _changed(root: Node, overrides: Sequence[str], context: dict[str, Any]) -> tuple[list[str], list[Problem]]:
    """Set the values of ``overrides``, and add those of the preset that ``technique`` names, if it names one.

    Return the mistakes in overrides, and what is wrong with the technique.
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
    """Return the problems that mistakes hide: rules run only when every value that they look at is good.

    So they run again without the unknown keys, and with samples for values that were refused or are missing. What they
    find wrong with such a sample is no mistake of the scenario.
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
    """Return the path of a setting with the section that it leaves out, so that texts of one place are equal."""
    return override_language.completed(path, _known())


@cache
def _known() -> override_language.Known:
    """Return the keys of each section, for paths that leave the section out, and the axes with their defaults.

    ``cluster`` is written out always: ``data_centers`` are those of the topology.
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
