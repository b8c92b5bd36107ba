"""``--set path=value``: change or add a value of the document before it is validated.

A path is keys and indices, as messages show them: ``training.rounds``, ``topology.links[0].rate``. ``[*]`` means
every item, ``[tokyo]`` the item with that name. A path may begin with a key of a section, where only one section has
it: ``links[*].rate`` is ``topology.links[*].rate``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping as Keys
from collections.abc import Sequence as Many
from decimal import Decimal

from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Mapping, Node, Scalar, Sequence, Where, parse
from testbed.scenario.reading.suggest import suggestion

_STEP = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)|\[(\*|[a-z0-9][a-z0-9-]*)\]")
_PATH = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*|\[(\*|[a-z0-9][a-z0-9-]*)\])*")


def apply(root: Node, overrides: Many[str], sections: dict[str, tuple[str, ...]]) -> list[str]:
    """Change ``root`` in place, and return the mistakes. ``sections``: the keys of each section."""
    problems: list[str] = []
    for override in overrides:
        path, equals, value = override.partition("=")
        source = f"--set {override}"
        if not equals or not _PATH.fullmatch(path.strip()):
            problems.append(f"{source}: not an override (write path=value, e.g. training.rounds=50)")
        else:
            problems += set_value(root, path.strip(), value, source, sections)
    return problems


def texts_of(values: Keys[str, object]) -> list[str]:
    """Return Python values by path as override texts. Texts stay as they are: ``{"links[0].rate": "5 Mbit/s"}``."""
    return [f"{path}={value if isinstance(value, str) else _flow(value)}" for path, value in values.items()]


def _flow(value: object) -> str:
    """Return a value as YAML in one line; floats are decimal, as scenarios have no exponents."""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, Keys):
        return "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value)


def set_value(
    root: Node, path: str, value: str, source: str, sections: Keys[str, tuple[str, ...]] | None = None
) -> list[str]:
    """Set one value, and return the mistakes. Messages call the value's place ``source``."""
    try:
        _set(root, path, value, source, sections or {})
    except ScenarioError as error:
        return list(error.problems)
    return []


def completed(path: str, sections: Keys[str, tuple[str, ...]]) -> str:
    """Return the path with the section that it leaves out: of two texts, whether they mean the same place."""
    return ".".join(_complete([key or f"[{index}]" for key, index in _STEP.findall(path)], sections))


def _set(root: Node, path: str, text: str, source: str, sections: Keys[str, tuple[str, ...]]) -> None:
    steps = _complete([key or index for key, index in _STEP.findall(path)], sections)
    targets = [root]
    for position, step in enumerate(steps[:-1]):
        targets = [child for target in targets for child in _children(target, step, steps[position + 1], source)]
    if not sum(_put(target, steps[-1], _value(text, source), source) for target in targets):
        raise ScenarioError(f"{source}: '{path}' matches nothing{_why_nothing(root, steps)}")


_CURES = {
    "generator": "write topology.generator.rate=… and the like",
    "use": "write topology.scale=…, or topology.links=[{between: [a, b], rate: …}]",
}


def _why_nothing(root: Node, steps: list[str]) -> str:
    """Return the cure, where links and data centres are not written out in the scenario."""
    topology = root.entries.get("topology") if isinstance(root, Mapping) and steps[0] == "topology" else None
    made = [key for key in _CURES if isinstance(topology, Mapping) and key in topology.entries]
    return f" (the network comes from '{made[0]}': {_CURES[made[0]]})" if made else ""


def _complete(steps: list[str], sections: Keys[str, tuple[str, ...]]) -> list[str]:
    """Return ``steps`` with the section in front, where it was left out and only one can be meant."""
    owners = [section for section, keys in sections.items() if steps[0] in keys]
    return [owners[0], *steps] if steps[0] not in sections and len(owners) == 1 else steps


def _value(text: str, source: str) -> Node:
    """Return the new value; mistakes in it have the override as their place."""
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


def _children(node: Node, step: str, following: str, source: str) -> list[Node]:
    """Return what ``step`` leads to; a section that was left out is added, empty."""
    if isinstance(node, Mapping):
        if step not in node.entries and not following.isdigit() and following != "*":
            node.entries[step], node.keys[step] = Mapping(Where(source)), Where(source)
        child = node.entries.get(step)
        if isinstance(child, Scalar) and not child.is_null:  # the short form of a technique: kind: WORD
            child = node.entries[step] = Mapping(child.where, {"kind": child}, {"kind": child.where})
        elif isinstance(child, Scalar):
            child = node.entries[step] = Mapping(child.where)
        return [child] if child is not None else []
    if isinstance(node, Sequence):
        return [node.items[index] for index in _selected(node, step, source)]
    return []


def _selected(node: Sequence, step: str, source: str) -> list[int]:
    if step == "*":
        return list(range(len(node.items)))
    if step.isdigit():
        if int(step) >= len(node.items):
            raise ScenarioError(f"{source}: there is no item {step}; the list has {len(node.items)} items")
        return [int(step)]
    names = [_name_of(item) for item in node.items]
    if step not in names:
        hint = suggestion(step, names) or f"there are {', '.join(name for name in names if name)}"
        raise ScenarioError(f"{source}: no item named '{step}' ({hint})")
    return [names.index(step)]


def _name_of(item: Node) -> str:
    name = item.entries.get("name") if isinstance(item, Mapping) else None
    return name.text if isinstance(name, Scalar) else ""


def _put(node: Node, step: str, value: Node, source: str) -> int:
    """Set one value, and return the number of places that were changed."""
    if isinstance(node, Mapping):
        node.entries[step], node.keys[step] = value, Where(source)
        return 1
    if isinstance(node, Sequence):
        chosen = _selected(node, step, source)
        for index in chosen:
            node.items[index] = value
        return len(chosen)
    return 0
