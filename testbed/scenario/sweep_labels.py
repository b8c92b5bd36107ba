"""Names the points of a sweep by the values that distinguish them, never by a hash.

``sync: [fsa, hfa]`` together with ``optimizer.at: [global, worker]`` makes ``fsa`` and ``hfa``: the first setting alone
tells them apart. ``codec: [none, fp16]`` with ``links[*].rate: [5 Mbit/s, 20 Mbit/s]`` makes ``codec none, rate 5
Mbit/s`` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol

from testbed.errors import ScenarioError
from testbed.scenario.reading.axes import CODE_PATTERN
from testbed.scenario.reading.document import Mapping as Entries
from testbed.scenario.reading.document import Node, Scalar, Where, flow, parse

TECHNIQUES = ("technique", "paradigm", "sync", "codec", "order", "overlay", "shard")
"""Sections whose value is the name of a technique, which says by itself what it is."""

Settings = Mapping[str, str]
DEFAULT = "default"
_SOURCE = "a value of a sweep"
_LONGEST = 28  # characters of one value in a label
_LONGEST_NAME = 100  # characters of a file's name, without the seed
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.=+]+")


@dataclass(frozen=True, slots=True)
class Word:
    """The value of one setting, as shown in labels.

    ``technique`` is the kind, if the value is a technique; ``text`` is more detailed, and includes its options. ``of``
    is the name of the setting, such as ``rate`` or ``batch``; it is empty if the value speaks for itself.
    """

    of: str
    text: str
    technique: str = ""

    def __str__(self) -> str:
        return f"{self.of} {self.text}".strip()


def varied_of(points: Sequence[Settings]) -> tuple[str, ...]:
    """Return the settings that are not the same in all points, in order."""
    paths = dict.fromkeys(path for point in points for path in point)
    return tuple(path for path in paths if len({point.get(path) for point in points}) > 1)


def telling(points: Sequence[Settings]) -> tuple[str, ...]:
    """Return the settings that distinguish the points, without those that change together with an earlier one."""
    kept = varied_of(points)
    distinct = len({_place(point, kept) for point in points})
    for path in reversed(kept):
        left = tuple(each for each in kept if each != path)
        if len({_place(point, left) for point in points}) == distinct:
            kept = left
    return kept


def _place(point: Settings, paths: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(point.get(path) for path in paths)


def words_of(paths: Sequence[str], points: Sequence[Settings]) -> list[tuple[Word, ...]]:
    """Return the values of ``paths`` as words, for each point; a setting that a point lacks is ``default``."""
    by_path = {path: _words(path, list(dict.fromkeys(point.get(path, DEFAULT) for point in points))) for path in paths}
    return [tuple(by_path[path][point.get(path, DEFAULT)] for path in paths) for point in points]


class PointOfSweep(Protocol):
    """A point for one seed."""

    @property
    def settings(self) -> Settings: ...
    @property
    def seed(self) -> int: ...


def link_names(points: Sequence[PointOfSweep]) -> list[str]:
    """Return the names of the links to runs: ``hfa-seed1``; ``seed1`` if only the seed varies."""
    names = _file_names([point.settings for point in points])
    return [f"{name}-seed{point.seed}".lstrip("-") for name, point in zip(names, points, strict=True)]


def _file_names(points: Sequence[Settings]) -> list[str]:
    """Return a unique name for each point, in lower case."""
    varied = varied_of(points)
    given: dict[tuple[str | None, ...], str] = {}
    for point, words in zip(points, words_of(telling(points), points), strict=True):
        place = _place(point, varied)
        if place in given:
            continue
        name = "-".join(_NOT_IN_NAMES.sub("-", str(word).lower()).strip("-.") for word in words)[:_LONGEST_NAME]
        number = 1 + sum(other == name or other.startswith(f"{name}~") for other in given.values())
        given[place] = name if number == 1 else f"{name}~{number}"
    return [given[_place(point, varied)] for point in points]


def kind_of(value: str) -> str:
    """Return the kind of a value, written alone or with options; empty for other mappings and for lists."""
    node = _node(value)
    if isinstance(node, Entries):
        node = node.entries.get("kind", node)
    return node.text if isinstance(node, Scalar) else ""


def _words(path: str, values: Sequence[str]) -> dict[str, Word]:
    """Return the word for each of the values of a setting."""
    keys = [key for key in re.split(r"[.\[\]]+", path) if key not in ("kind", "*", "")]
    is_technique = keys[0] in TECHNIQUES and len(keys) == 1
    nodes = {value: _node(value) for value in values}
    kinds = {value: kind_of(value) for value in values}
    found: dict[str, Word] = {}
    for number, (value, node) in enumerate(nodes.items(), 1):
        kind = kinds[value]
        alike = [nodes[other] for other in values if kinds[other] == kind]
        options = _options(node, alike)
        text = " ".join([_short(kind), *options]) if kind else flow(node).strip("{}[]")
        if len(text) > _LONGEST:
            alone = [f"{_short(kind)} {option}" for option in options if _tells(option, node, alike)]
            text = next((each for each in alone if len(each) <= _LONGEST), f"{_short(kind)} {number}".strip())
        of = "" if is_technique and kind not in ("", "none") else keys[-1]
        found[value] = Word(of, text, kind if is_technique else "")
    return found


def _node(value: str) -> Node:
    try:
        return parse(value, _SOURCE)
    except ScenarioError:  # an empty text, which means null in a scenario
        return Scalar(value, Where(_SOURCE))


def _short(kind: str) -> str:
    """Return the short form of a kind: a class of code without its module, a file without its folders."""
    if re.fullmatch(CODE_PATTERN, kind):
        return kind.rpartition(":")[2]
    file = PurePath(kind)
    return file.name if file.suffix and len(file.parts) > 1 else kind


def _options(node: Node, alike: Sequence[Node]) -> list[str]:
    """Return those options of a value in which it differs from other values of its kind."""
    mine = _entries(node)
    others = [_entries(other) for other in alike]
    return [
        f"{name}={value}"
        for name, value in mine.items()
        if name != "kind" and any(other.get(name) != value for other in others)
    ]


def _tells(option: str, node: Node, alike: Sequence[Node]) -> bool:
    """Return whether ``option`` alone, written ``name=value``, distinguishes this value from all others of its kind."""
    name, _, value = option.partition("=")
    return all(_entries(other).get(name) != value for other in alike if other is not node)


def _entries(node: Node) -> dict[str, str]:
    return {name: flow(value) for name, value in node.entries.items()} if isinstance(node, Entries) else {}
