"""Checks of topology readers and trace formats (``docs/axes/topology.md``, ``docs/axes/trace.md``).

They read a file of the format, the class' ``sample`` or the one of ``testbed check --file``, and copies of it with
mistakes.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require
from topologies.readers import READERS
from topologies.readers.base import RATE_UNITS, GraphReading
from topologies.readers.raw import RawGraph
from topologies.readers.zoo import annotate
from topologies.text_file import TextFile
from topologies.traces.model import LIMITS, Trace

_ROWS = 20  # of a sample, that are spoilt one by one
_GARBAGE = "?!"
_NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)?(?![\w.])")
_IMPOSSIBLE = ("nan", "inf", "-7", "1e30")
_EMPTY_LINES = 3
_UNITS = {"rate": ("Mbit/s", "kbit/s"), "delay": ("s", "ms"), "loss": ("share", "%")}
_EFFECTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "time_unit": ({"time_unit": "s"}, {"time_unit": "ms"}),
    "step": ({"step_s": 0.5}, {"step_s": 2.0}),
    "from": ({}, {"source": "nowhere-known"}),
    "to": ({}, {"target": "nowhere-known"}),
    "columns": ({}, {"columns": (("rate", "no such column"),)}),
}
_SCENARIO = """
version: 1
name: check
seed: 1
run: {{on: simulate}}
topology: {topology}
training: {{model: mlp, data: digits, rounds: 1, evaluate_every: 1}}
"""
_GRAPH = "{{use: {file}, reader: '{kind}', rate: 1 Gbit/s, delay: 5 ms, external: true}}"
_LINK = """
  data_centers: [{{name: hub, central: true}}, {{name: east}}]
  links: [{{between: [hub, east], rate: 10 Mbit/s, delay: 5 ms, {what}_trace: {{file: {file}, format: '{kind}'}}}}]
"""


def reading_twice_gives_the_same(subject: Subject) -> None:
    file = _file(subject)
    first, second = _parsed(subject, file), _parsed(subject, file)
    require(
        first == second, "the same from the same file", "something else the second time",
        "keep no state in the class or module, and draw nothing by chance",
    )  # fmt: skip


def it_gives_a_whole_network(subject: Subject) -> None:
    file = _file(subject)
    raw = _parsed(subject, file)
    require(
        raw.default_unit in RATE_UNITS, f"a default_unit of {', '.join(RATE_UNITS)}", repr(raw.default_unit),
        "state the unit of LinkSpeedRaw",
    )  # fmt: skip
    graph = _accepted(lambda: _read(subject, file))
    require(len(graph) > 1, "at least two vertices", str(len(graph)), "read all of them, or give a larger --file")
    lost = len(raw.vertices) - len(graph)
    require(
        not lost, "a connected network", f"{lost} vertices are not connected with the others",
        "read all links, or give a --file whose network is connected",
    )  # fmt: skip
    last = len(file.text.splitlines())
    outside = [part.line for part in (*raw.vertices, *raw.edges) if not 1 <= part.line <= last]
    require(not outside, f"lines from 1 to {last}", f"line {[*outside, 0][0]}", "pass on the number beside each row")


def it_gives_a_valid_trace(subject: Subject) -> None:
    """Of the quantity that was asked for, which is one that the format ``holds``, or a refusal."""
    file = _file(subject)
    unknown = [what for what in subject.entry.holds if what not in LIMITS]
    require(subject.entry.holds and not unknown, f"holds: some of {', '.join(LIMITS)}", repr(subject.entry.holds),
            "name what the format can hold")  # fmt: skip
    _require_valid(_accepted(lambda: _read(subject, file)), subject.options.what)
    for what in subject.entry.holds:
        trace = _outcome(_parsed, subject, file, what=what, unit=None)
        if isinstance(trace, Trace):
            _require_valid(trace, what)


def _require_valid(trace: Trace, what: str) -> None:
    require(
        trace.what == what, f"a trace of what is asked for: {what}", trace.what,
        "pass reading.what on, or refuse what the file does not hold",
    )  # fmt: skip
    times, count = trace.times_s, len(trace.times_s)
    require(count == len(trace.values) > 0, "as many values as times", f"{len(trace.values)}, {count}", "pair them")
    rising = times[0] == 0 and all(before < after for before, after in pairwise(times))
    require(rising and math.isfinite(times[-1]), "times that rise from 0 s", str(times[:5]), "sort and shift them")
    require(
        times[-1] < trace.length_s < math.inf, f"a length_s beyond the last time, {times[-1]:g} s",
        f"{trace.length_s:g} s", "state when the last value ends; topologies.traces.model.from_durations does",
    )  # fmt: skip
    low, high, unit = LIMITS[what]
    outside = [value for value in trace.values if not low <= value <= high]
    require(
        not outside, f"values from {low:g} to {high:g} {unit}", f"{[*outside, 0][0]:g}",
        "convert them to SI units; topologies.traces.model.finish refuses the others",
    )  # fmt: skip


def declared_settings_have_an_effect(subject: Subject) -> None:
    file, (one, other) = _file(subject), _UNITS[subject.options.what]
    effects = {"unit": ({"unit": one}, {"unit": other}), **_EFFECTS}
    for key in subject.entry.takes:
        require(key in effects, f"settings of {', '.join(effects)}", repr(key), "remove it from 'takes'")
        first, second = (_outcome(_parsed, subject, file, **changes) for changes in effects[key])
        require(
            first != second, f"another result with another '{key}'", "the same", "use it, or remove it from 'takes'"
        )


def damage_is_refused_with_line_and_cure(subject: Subject) -> None:
    """Replace each row by garbage: a refusal names the file and the cure, and some the very line."""
    file, exact = _file(subject), 0
    for line, _ in file.rows[:_ROWS]:
        refusal = _outcome(_read, subject, _with_line(file, line, _GARBAGE))
        if isinstance(refusal, str):
            place = f"{file.name}:{line}: "
            require(
                refusal.startswith(f"{file.name}:") and refusal.endswith(")"), f"'{place}PROBLEM (CURE)'", refusal,
                "call file.refuse(line, problem, cure)",
            )  # fmt: skip
            exact += refusal.startswith(place)
    require(
        exact, f"a refusal of a row '{_GARBAGE}' that names its line", "none", "call file.refuse(line, problem, cure)"
    )


def lines_are_counted_in_the_file(subject: Subject) -> None:
    """Rows lack comments and empty lines: with empty lines in front, refusals must name later lines."""
    file = _file(subject)
    moved = TextFile.of(file.name, "\n" * _EMPTY_LINES + file.text)
    if isinstance(_outcome(_read, subject, moved), str):
        return  # a format that begins in the first line
    for line, _ in file.rows[:_ROWS]:
        before = str(_outcome(_read, subject, _with_line(file, line, _GARBAGE)))
        after = str(_outcome(_read, subject, _with_line(moved, line + _EMPTY_LINES, _GARBAGE)))
        if before.startswith(place := f"{file.name}:{line}: "):
            expected = f"{file.name}:{line + _EMPTY_LINES}: "
            require(
                after.startswith(expected), f"'{expected}…' below {_EMPTY_LINES} empty lines", after or place,
                "name the number that file.rows has beside the text",
            )  # fmt: skip


def impossible_numbers_are_refused(subject: Subject) -> None:
    """Replace the last number of each row: what is not refused must be a valid trace, or a network, all the same."""
    file = _file(subject)
    for line, text in file.rows[:_ROWS]:
        for match in [*_NUMBER.finditer(text)][-1:]:
            for number in _IMPOSSIBLE:
                row = text[: match.start()] + number + text[match.end() :]
                result = _outcome(_read, subject, _with_line(file, line, row))
                try:
                    if isinstance(result, Trace):
                        _require_valid(result, subject.options.what)
                except CheckFailed as failure:
                    cure = "refuse it; file.numbers and topologies.traces.model.finish do"
                    raise CheckFailed(f"a refusal of line {line}: '{row}'", failure.happened, cure) from None


def a_scenario_can_use_it(subject: Subject) -> None:
    if subject.values:
        return
    file = _file(subject)
    is_graph = subject.axis is READERS
    what = "" if is_graph else subject.options.what
    with tempfile.TemporaryDirectory(prefix="testbed-check-") as folder:
        name = file.name if Path(file.name).suffix else f"{file.name}.txt"
        Path(folder, name).write_text(file.text, encoding="utf-8")
        topology = (_GRAPH if is_graph else _LINK).format(file=name, kind=subject.kind, what=what)
        scenario = _SCENARIO.format(topology=topology)
        plan = _accepted(lambda: build_plan(loads(scenario, "check.yaml", folder=Path(folder))))
    require(
        plan.network.links and (is_graph or getattr(plan.network.links[0], f"{what}_trace")),
        "links that follow the file", "none", "return what the file holds",
    )  # fmt: skip


def _file(subject: Subject) -> TextFile:
    assert subject.file is not None
    return subject.file


def _with_line(file: TextFile, line: int, text: str) -> TextFile:
    lines = file.text.splitlines()
    lines[line - 1] = text
    return TextFile.of(file.name, "\n".join(lines) + "\n")


def _parsed(subject: Subject, file: TextFile, **changes: Any) -> Any:
    """Return the raw graph or the trace of ``file``, as the class under check reads it."""
    expected: type[Any] = RawGraph if subject.axis is READERS else Trace
    more = () if subject.axis is READERS else (replace(subject.options, **changes),)
    result = subject.entry.parse(file, *more)
    require(isinstance(result, expected), f"a {expected.__name__}", repr(result)[:60], "return one from parse")
    return result


def _read(subject: Subject, file: TextFile) -> Any:
    """Return the network or the trace of ``file``, as a scenario would get it."""
    parsed = _parsed(subject, file)
    if isinstance(parsed, Trace):
        return parsed
    given: GraphReading = subject.options
    reading = replace(given, rate_bps=given.rate_bps or 1e9, delay_s=given.delay_s or 0.005, external=True)
    return annotate(file, parsed, reading)


def _outcome(read: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Return what is read, or the text of the refusal."""
    try:
        return read(*arguments, **more)
    except ScenarioError as error:
        return str(error)


def _accepted(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except ScenarioError as error:
        cure = "correct parse, or give a valid --file, with --set for settings that it needs"
        raise CheckFailed("a file that can be used", str(error), cure) from error


_BOTH = (
    damage_is_refused_with_line_and_cure,
    lines_are_counted_in_the_file,
    impossible_numbers_are_refused,
    a_scenario_can_use_it,
)
TOPOLOGY = (reading_twice_gives_the_same, it_gives_a_whole_network, *_BOTH)
TRACE = (reading_twice_gives_the_same, it_gives_a_valid_trace, declared_settings_have_an_effect, *_BOTH)
