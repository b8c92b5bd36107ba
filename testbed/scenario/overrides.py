"""``--set path=value``: change or add a value of the document before it is validated.

A path is keys and indices, as messages show them: ``training.rounds``, ``topology.links[0].rate``. ``[*]`` means
every item, ``[tokyo]`` the item with that name, ``[paris-tokyo]`` the link between these two. A path may begin with a
key of a section, where only one section has it: ``links[*].rate`` is ``topology.links[*].rate``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping as Keys
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NamedTuple

from testbed.errors import ScenarioError
from testbed.ids import slug
from testbed.scenario.reading.axes import TIERS
from testbed.scenario.reading.document import Mapping, Node, Scalar, Sequence, Where, copied, parse
from testbed.suggest import nearest_or_all

_STEP = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)|\[(\*|[a-z0-9][a-z0-9-]*)\]")
_MOST_NAMES = 12  # in a hint
_PATH = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*|\[(\*|[a-z0-9][a-z0-9-]*)\])*")


class AxisDefault(NamedTuple):
    """The default of an axis that a scenario leaves out. ``by_tier``: whether the axis has a value for each tier."""

    kind: str
    by_tier: bool


@dataclass(frozen=True, slots=True)
class Known:
    """The parts of the schema that overrides need: the keys of each section, and the axes by their path."""

    sections: Keys[str, tuple[str, ...]] = field(default_factory=dict)
    axes: Keys[str, AxisDefault] = field(default_factory=dict)


def apply(root: Node, overrides: Many[str], known: Known) -> list[str]:
    """Change ``root`` in place, and return the mistakes."""
    problems: list[str] = []
    for override in overrides:
        path, equals, value = override.partition("=")
        source = f"--set {override}"
        if not equals or not _PATH.fullmatch(path.strip()):
            problems.append(f"{source}: not an override ({_path_cure(path) if equals else _FORM})")
        else:
            problems += set_value(root, path.strip(), value, source, known)
    return problems


_FORM = "write path=value, e.g. training.rounds=50"


def _path_cure(path: str) -> str:
    """Return how to write a path that has an invalid item name, such as ``data_centers[New York]``."""
    cured = re.sub(r"\[([^\]]*)\]", lambda found: f"[{slug(found[1]) or found[1]}]", path.strip())
    return f"write {cured}=…" if cured != path.strip() and _PATH.fullmatch(cured) else _FORM


def texts_of(values: Keys[str, object]) -> list[str]:
    """Return Python values by path as override texts. Texts are not changed: ``{"links[0].rate": "5 Mbit/s"}``.

    Raise ``ScenarioError`` for a value that a scenario cannot hold.
    """
    plain_values = {path: python_value(value, path) for path, value in values.items()}
    return [f"{path}={value if isinstance(value, str) else _flow(value)}" for path, value in plain_values.items()]


def python_value(value: Any, path: str) -> Any:
    """Return a value of a user's program as texts, numbers, lists and dictionaries.

    Numbers, arrays and tensors of NumPy, pandas and PyTorch become Python's own, and paths texts. Raise
    ``ScenarioError``, which names ``path``, for what a scenario cannot hold.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Keys):
        return {str(key): python_value(entry, f"{path}.{key}" if path else str(key)) for key, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [python_value(entry, f"{path}[{index}]") for index, entry in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    raise ScenarioError(f"{path}: a value of type {kind} (write a text, a number, true or false, a list or a mapping)")


def _flow(value: Any) -> str:
    """Return a value as YAML in one line; floats are decimal, as scenarios have no exponents."""
    if isinstance(value, float):
        return format(Decimal(repr(float(value))), "f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def set_value(root: Node, path: str, text: str, source: str, known: Known) -> list[str]:
    """Set one value, and return the mistakes. Messages call the value's place ``source``."""
    steps = _complete([key or index for key, index in _STEP.findall(path)], known.sections)
    targets = [root]
    try:
        for position, step in enumerate(steps[:-1]):
            axis = known.axes.get(".".join(steps[: position + 1]))
            following = steps[position + 1]
            targets = [child for target in targets for child in _children(target, (step, following), axis, source)]
        if not sum(_put(target, steps[-1], _value(text, source), source) for target in targets):
            return [f"{source}: '{path}' matches nothing{_why_nothing(root, steps)}"]
    except ScenarioError as error:
        return list(error.problems)
    return []


def completed(path: str, known: Known) -> str:
    """Return the path with the section that it leaves out, so that paths of the same place are equal."""
    return ".".join(_complete([key or f"[{index}]" for key, index in _STEP.findall(path)], known.sections))


_CURES = {
    "generator": "write topology.generator.rate=… and the like",
    "use": "write topology.scale=…, or topology.links=[{between: [a, b], rate: …}]",
}


def _why_nothing(root: Node, steps: list[str]) -> str:
    """Return the cure if the scenario does not write out its links and data centres."""
    topology = root.entries.get("topology") if isinstance(root, Mapping) and steps[0] == "topology" else None
    made = [key for key in _CURES if isinstance(topology, Mapping) and key in topology.entries]
    return f" (the network comes from '{made[0]}': {_CURES[made[0]]})" if made else ""


def _complete(steps: list[str], sections: Keys[str, tuple[str, ...]]) -> list[str]:
    """Return ``steps`` with the section in front, if it was left out and only one section can be meant."""
    owners = [section for section, keys in sections.items() if steps[0] in keys]
    return [owners[0], *steps] if steps[0] not in sections and len(owners) == 1 else steps


def _value(text: str, source: str) -> Node:
    """Return the new value. Messages about it give the override as their place."""
    where = Where(source)
    if text.strip() in ("", "null", "~"):
        return Scalar("null", where)
    try:
        node = parse(text, source)
    except ScenarioError as error:
        reason = error.problems[0].removeprefix(source).lstrip(":0123456789 ")
        raise ScenarioError(f"{source}: {reason}") from error
    _move(node, where)
    return node


def _move(node: Node, where: Where) -> None:
    node.where = where
    if isinstance(node, Mapping):
        node.keys = dict.fromkeys(node.keys, where)
    children = node.entries.values() if isinstance(node, Mapping) else getattr(node, "items", ())
    for child in children:
        _move(child, where)


def _children(node: Node, steps: tuple[str, str], axis: AxisDefault | None, source: str) -> list[Node]:
    """Return the nodes that the first of ``steps`` selects. A missing section is added, empty or with its default."""
    step, following = steps
    if isinstance(node, Mapping):
        child = node.entries.get(step)
        if child is None and not following.isdigit() and following != "*":
            child = Scalar("null", Where(source))
            node.keys[step] = Where(source)
        if child is None:
            return []
        node.entries[step] = _as_mapping(child, axis, following in TIERS)
        return [node.entries[step]]
    if isinstance(node, Sequence):
        return [node.items[index] for index in _selected(node, step, source)]
    return []


def _as_mapping(node: Node, axis: AxisDefault | None, at_tier: bool) -> Node:
    """Return a section in its long form; with ``at_tier``, the form that has a value for each tier.

    A missing axis gets its default, so that options or the value of one tier can be added.
    """
    if isinstance(node, Scalar) and node.is_null:
        if axis is None:
            return Mapping(node.where)
        node = Scalar(axis.kind, node.where)
    if axis and axis.by_tier and at_tier and (isinstance(node, Scalar) or "kind" in getattr(node, "entries", ())):
        return Mapping(node.where, {tier: copied(node) for tier in TIERS}, dict.fromkeys(TIERS, node.where))
    return Mapping(node.where, {"kind": node}, {"kind": node.where}) if isinstance(node, Scalar) else node


def _selected(node: Sequence, step: str, source: str) -> list[int]:
    if step == "*":
        return list(range(len(node.items)))
    if step.isdigit():
        if int(step) >= len(node.items):
            raise ScenarioError(f"{source}: there is no item {step}; the list has {len(node.items)} items")
        return [int(step)]
    names = [_names_of(item) for item in node.items]
    found = [index for index, each in enumerate(names) if step in each]
    if not found:
        named = [each[0] for each in names if each]
        hint = nearest_or_all(step, named, _MOST_NAMES) if named else "the items have no names; write a number"
        raise ScenarioError(f"{source}: no item named '{step}' ({hint})")
    return found[:1]


def _names_of(item: Node) -> list[str]:
    """Return the names of an item: its own name or, for a link without a name, its two ends in either order."""
    if not isinstance(item, Mapping):
        return []
    name = item.entries.get("name")
    between = item.entries.get("between")
    if isinstance(name, Scalar):
        return [name.text]
    if isinstance(between, Sequence):
        ends = [end.text for end in between.items if isinstance(end, Scalar)]
        return ["-".join(ends), "-".join(reversed(ends))]
    ends = [end.text for end in map(item.entries.get, ("from", "to")) if isinstance(end, Scalar)]
    return ["-".join(ends)] if ends else []


def _put(node: Node, step: str, value: Node, source: str) -> int:
    """Set one value, and return the number of places that were changed."""
    if isinstance(node, Mapping):
        node.entries[step] = value
        node.keys[step] = Where(source)
        return 1
    if isinstance(node, Sequence):
        chosen = _selected(node, step, source)
        for index in chosen:
            node.items[index] = copied(value)  # each its own: a later override may change one of them
        return len(chosen)
    return 0
