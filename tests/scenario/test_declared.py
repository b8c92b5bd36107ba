"""A setting is declared once: what is read, refused, written, described and planned follows from its field."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
from pydantic import ValidationError

from testbed.declaration import Problem, derived, item, made_from, option, texts_of
from testbed.scenario import json_schema
from testbed.scenario.reading.declared import changes_of, model_of, read, resolved
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.reading.problems import lines_of, problems_of
from testbed.settings import faults, job, network, run
from tests.for_each import for_each


@dataclass(frozen=True, kw_only=True)
class Pause:
    """A pause of the run."""

    wait_s: float = option(1.0, unit="s", min=0.5, max=60.0)
    """How long it lasts."""
    until_s: float = option(math.inf, unit="s", absent=math.inf)
    """When the last one ends."""
    names: tuple[Annotated[str, item(form="name")], ...] = ()
    """Who pauses."""
    seed: str = derived("")

    def problems(self) -> Iterator[Problem]:
        if self.until_s <= self.wait_s:
            yield "until", f"{self.until_s:g} s is within the first pause", "write a later time"


@dataclass(frozen=True, kw_only=True)
class PlannedPause:
    wait_s: float
    names: tuple[str, ...]
    node: str


def pause(text: str) -> Pause:
    return read(Pause, plain(parse(text, "p.yaml")))


def test_keys_have_no_unit_and_values_are_in_si_units() -> None:
    found = pause("{wait: 500 ms, until: null, names: [a, b]}")
    assert found == Pause(wait_s=0.5, names=("a", "b"))
    assert resolved(found) == {"wait": "500 ms", "names": ["a", "b"]}
    assert pause("{until: 2 min}").until_s == 120


@for_each(
    ("text", "line"),
    [
        ("wait: 2", "p.yaml:1:7: wait: 2 has no unit (write a unit, e.g. '50 ms')"),
        ("wait: 90 s", "p.yaml:1:7: wait: 90 s is outside [500 ms, 1 min]"),
        (
            "names: [a, B]",
            "p.yaml:1:12: names[1]: 'B' is not a valid name (write 'b', of 1-32 characters: a-z first, then "
            "a-z 0-9 '-')",
        ),
        ("until: 1 s", "p.yaml:1:8: until: 1 s is within the first pause (write a later time)"),
        ("seed: x", "p.yaml:1:1: seed: unknown key (allowed: wait, until, names)"),
        ("wiat: 1 s", "p.yaml:1:1: wiat: unknown key (did you mean 'wait'?)"),
    ],
)
def test_a_refusal_names_the_place_and_the_cure(text: str, line: str) -> None:
    root = parse(text, "p.yaml")
    with pytest.raises(ValidationError) as caught:
        read(Pause, plain(root))
    [found] = lines_of(problems_of(caught.value, root, model_of(Pause)))
    assert found.startswith(line)


def test_the_plan_takes_what_has_the_same_name() -> None:
    planned = made_from(PlannedPause, pause("names: [a]"), node="a/worker0")
    assert planned == PlannedPause(wait_s=1.0, names=("a",), node="a/worker0")


def test_changes_are_those_that_are_written() -> None:
    changes = changes_of(Pause, "PauseChanges", "What differs.", "wait_s")
    found = read(changes, plain(parse("{wait: 2 s}", "p.yaml")))
    assert vars(found) == {"wait_s": 2.0} and vars(changes()) == {"wait_s": None}
    again = changes_of(changes, "PauseChangesAgain", "What differs there.")
    for made in (changes, again):
        assert model_of(made).model_json_schema()["properties"]["wait"]["description"] == "How long it lasts."


def test_texts_below_the_fields_are_the_descriptions() -> None:
    assert texts_of(Pause) == {
        "wait_s": "How long it lasts.",
        "until_s": "When the last one ends.",
        "names": "Who pauses.",
    }
    sections = json_schema()["$defs"]
    missing = [
        (name, key)
        for name, section in sections.items()
        for key, about in section.get("properties", {}).items()
        if key != "kind" and not about.get("description")
    ]
    assert missing == []


def test_names_say_the_units_of_what_is_declared() -> None:
    suffixes = {"_s": "s", "_bps": "bit/s", "_bytes": "bytes"}
    declared = [
        kind
        for module in (faults, job, network, run)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
    wrong = [
        f"{kind.__name__}.{field.name}"
        for kind in declared
        for field in fields(kind)
        for suffix, unit in suffixes.items()
        if "derived" not in field.metadata and field.name.endswith(suffix) != (field.metadata.get("unit") == unit)
    ]
    assert wrong == []
