"""Turns violations and pydantic's errors into lines that name the place, the path, the problem and the cure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from testbed.scenario.reading.axes import TIERS
from testbed.scenario.reading.document import Mapping, Node, Scalar, Sequence, Where
from testbed.scenario.reading.keys import Path, keys_at
from testbed.scenario.reading.quantities import shown
from testbed.scenario.reading.violations import Violation
from testbed.suggest import suggestion

MAX_SHOWN = 20
UNKNOWN_KEY = "unknown key"
_RENAMED = {"training.iterations": "training.rounds"}
_ON_ONE_MACHINE = (
    "leave it out: a network is emulated on one machine; 'run: {on: cluster}' deploys the nodes over the machines' own "
    "network, and 'run: {on: simulate}' takes networks that are too large for one machine"
)
_REMOVED = {
    "overlay.auxiliary": "leave it out: chunks follow the trees, which are planned again when the network changes",
    "paradigm.rank_order": "leave it out: ranks are in the order in which the scenario lists its data centres",
    "paradigm.coordinated": "leave it out: each worker chooses from its own part of the sum of its data centre",
    "cluster.emulate": _ON_ONE_MACHINE,
    "cluster.machines": _ON_ONE_MACHINE,
    "timeouts.suspect": "leave it out: it had no effect, and 'dead_after' says when a node is lost",
    "simulation.host": "leave it out: 'network: packets' predicts the links of an emulation packet by packet, and "
    "results of 'run: {on: exact}' do not depend on the machine's load",
}
_INSTEAD = {"faults.between": "write 'link: A<>B' for both directions of a link, or 'link: A>B' for one"}
"""Cures for keys that belong to another section, by path without the numbers of items."""


@dataclass(frozen=True)
class Problem:
    """One mistake of a scenario.

    where  its place in the file
    path   the path of its key; ``""`` for the whole document, ``None`` if the user wrote no scenario and ``text`` names
           the place
    text   what is wrong
    hint   the cure
    """

    where: Where
    path: str | None
    text: str
    hint: str = ""

    def __str__(self) -> str:
        text = self.text if self.path is None else f"{self.where}: {self.path or 'document'}: {self.text}"
        return f"{text} ({self.hint})" if self.hint else text


def lines_of(problems: list[Problem]) -> list[str]:
    """Return the first ``MAX_SHOWN`` problems as lines, in the order of the file and without repetitions."""
    ordered = sorted(set(problems), key=lambda problem: (problem.where.line, problem.where.column, str(problem)))
    lines = [str(problem) for problem in ordered[:MAX_SHOWN]]
    return [*lines, f"… and {len(ordered) - MAX_SHOWN} more"] if len(ordered) > MAX_SHOWN else lines


def problems_of(error: ValidationError, root: Node, model: type[BaseModel], only: str | None = None) -> list[Problem]:
    """Return every error of pydantic (or only those of type ``only``) as a problem. ``model`` has raised them.

    A required key counts as missing only if no unknown key looks like a misspelling of it.
    """
    details = [detail for detail in error.errors(include_url=False) if only in (None, detail["type"])]
    problems = [problem for detail in details for problem in _problems(detail, root, model)]
    misspelt = {
        ((problem.path or "").rpartition(".")[0], problem.hint) for problem in problems if problem.text == UNKNOWN_KEY
    }

    def is_meant(problem: Problem) -> bool:
        section, _, key = (problem.path or "").rpartition(".")
        return (section, f"did you mean '{key}'?") in misspelt

    return [problem for problem in problems if not is_meant(problem)]


def problem_at(root: Node, violation: Violation, section: Path = ()) -> Problem:
    return Problem(*place(root, (*section, *violation.at)), violation.problem, violation.hint)


def place(root: Node, path: Path) -> tuple[Where, str]:
    """Return the place of ``path`` in the file and the path as text, as far as the tree contains it."""
    node: Node = root
    where = root.where
    written = ""
    for element in path:
        if isinstance(element, str) and element.startswith("<"):
            continue
        child, key_where = _child(node, element)
        if child is None:
            if _is_short_form(node, element):
                continue
            written = _join(written, element)
            break
        node, where, written = child, key_where, _join(written, element)
    return where, written


def _is_short_form(node: Node, element: str | int) -> bool:
    """Return whether a short form leaves ``element`` out: one value for both tiers, a bare word, or a bare list."""
    if isinstance(node, Mapping):
        return element in TIERS and "kind" in node.entries
    return element in ("kind", "points", "use", *TIERS)


def _child(node: Node, element: str | int) -> tuple[Node | None, Where]:
    if isinstance(node, Mapping) and element in node.entries:
        child = node.entries[str(element)]
        points_at_value = isinstance(child, Scalar) and (child.text or child.quoted)
        return child, child.where if points_at_value else node.keys[str(element)]
    if isinstance(node, Sequence) and isinstance(element, int) and element < len(node.items):
        return node.items[element], node.items[element].where
    return None, node.where


def _join(written: str, element: str | int) -> str:
    if isinstance(element, int):
        return f"{written}[{element}]"
    return f"{written}.{element}" if written else element


def _problems(detail: Any, root: Node, model: type[BaseModel]) -> Iterator[Problem]:
    kind = detail["type"]
    path = detail["loc"]
    context = detail.get("ctx", {})
    if kind == "rules":
        for found in context["found"]:
            yield problem_at(root, found, path)
        return
    where, written = place(root, path)
    if kind == "refused":
        yield Problem(where, written, context["problem"], context["hint"])
    elif kind == "missing":
        what = "key" if isinstance(path[-1], str) else "item"
        yield Problem(where, written, f"required {what} is missing")
    elif kind == "extra_forbidden":
        yield _unknown_key(root, path, model)
    else:
        yield Problem(where, written, _native(kind, detail))


def _unknown_key(root: Node, path: Path, model: type[BaseModel]) -> Problem:
    where, written = place(root, path)
    parent = root
    key = str(path[-1])
    for element in path[:-1]:
        parent = _child(parent, element)[0] or parent
    if isinstance(parent, Mapping) and key in parent.keys:
        where = parent.keys[key]
    if written in _RENAMED:
        return Problem(where, written, "was renamed", f"write {_RENAMED[written]}")
    of_any_tier = ".".join(part for part in written.split(".") if part not in TIERS)
    if of_any_tier in _REMOVED:
        return Problem(where, written, "was removed", _REMOVED[of_any_tier])
    if instead := _INSTEAD.get(".".join(part for part in path if isinstance(part, str))):
        return Problem(where, written, UNKNOWN_KEY, instead)
    known = [key for key in keys_at(model, path[:-1]) if key != "kind"] or ["no options"]
    return Problem(where, written, UNKNOWN_KEY, suggestion(key, known) or f"allowed: {', '.join(known)}")


def _native(kind: str, detail: Any) -> str:
    value = detail["input"]
    got = "a list" if isinstance(value, tuple | list) else "a mapping" if isinstance(value, dict) else shown(value)
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"expected a mapping, got {got}"
    if kind == "tuple_type":
        return f"expected a list, got {got}"
    if kind in ("too_long", "too_short"):
        return f"has {detail['ctx']['actual_length']} items, expected 2"
    return f"{detail['msg']}, got {got}"
