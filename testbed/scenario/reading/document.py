"""Parses YAML text into a tree that keeps the place of every value. Stricter than YAML; values are not converted.

A scalar stays the text that was written, and the schema decides its type: ``no`` is not a boolean (the Norway problem),
and there are no octal or sexagesimal numbers and no dates. Tags, aliases, merge keys, duplicate keys and further
documents are refused. Limits on size, depth and number of nodes, and building no Python objects, keep a stranger's file
harmless.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from testbed.errors import ScenarioError

MAX_BYTES = 1 << 20
MAX_DEPTH = 12
MAX_NODES = 20_000
# characters that end a plain scalar within brackets, or begin something other than a plain scalar
_NOT_PLAIN = re.compile(r"""[,\[\]{}\n]|:(\s|$)|(^|\s)#|^[&*!|>'"%@`]|^[-?](\s|$)|^\s|\s$""")


@dataclass(frozen=True)
class Where:
    """A place in a file (line and column count from 1), or in a command-line option (line 0)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass
class Scalar:
    """One value, as the text that was written."""

    text: str
    where: Where
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        return not self.quoted and self.text in ("", "~", "null")

    def __repr__(self) -> str:
        return "null" if self.is_null else f"'{self.text}'"


@dataclass
class Sequence:
    """A list."""

    where: Where
    items: list[Node] = field(default_factory=list)


@dataclass
class Mapping:
    """A mapping. ``keys`` holds the place of each key."""

    where: Where
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Where] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping


def parse(text: str | bytes, source: str) -> Node:
    """Return the tree of one document. Raise ``ScenarioError`` with ``source:line:column``."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if len(text) > MAX_BYTES:
        raise ScenarioError(f"{source}: file is {len(text)} bytes, limit is {MAX_BYTES}")
    try:
        return copied(_document(text, source))
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{source}: not valid UTF-8 at byte {error.start} (save it as UTF-8)") from error
    except MarkedYAMLError as error:
        raise ScenarioError(_syntax_problem(error, source)) from error
    except (YAMLError, ValueError, RecursionError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ScenarioError(f"{source}: not valid YAML: {reason[0]}") from error


@lru_cache(maxsize=128)  # the points of a sweep parse the same scenario and overrides, which takes 10 ms each time
def _document(text: bytes, source: str) -> Node:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    return _Composer(source, iter(yaml.parse(text.decode("utf-8")))).document()


def copied(node: Node) -> Node:
    """Return a copy of the tree, in which overrides may set values."""
    if isinstance(node, Mapping):
        return Mapping(node.where, {key: copied(value) for key, value in node.entries.items()}, dict(node.keys))
    if isinstance(node, Sequence):
        return Sequence(node.where, [copied(item) for item in node.items])
    return Scalar(node.text, node.where, node.quoted)


def plain(node: Node) -> Any:
    """Return the tree as nested ``dict`` and ``list`` with ``Scalar`` leaves, as the schema validates it."""
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return node


def flow(node: Node) -> str:
    """Return the node as YAML on one line, in the form of an override's value."""
    if isinstance(node, Scalar):
        return _in_flow(node.text, node.quoted)
    if isinstance(node, Sequence):
        return "[" + ", ".join(map(flow, node.items)) + "]"
    return "{" + ", ".join(f"{_in_flow(key)}: {flow(value)}" for key, value in node.entries.items()) + "}"


def _in_flow(text: str, quoted: bool = False) -> str:
    """Return one value as YAML, in quotes if it needs them within brackets."""
    return json.dumps(text, ensure_ascii=False) if quoted or _NOT_PLAIN.search(text) else text or "null"


def _syntax_problem(error: MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = Where(source, mark.line + 1, mark.column + 1) if mark else Where(source)
    return f"{where}: not valid YAML: {error.problem or error.context}"


class _Composer:
    """Builds the tree from the parser's events, and stops at the first construct that is not allowed."""

    def __init__(self, source: str, events: Iterator[Any]) -> None:
        self._source = source
        self._events = events
        self._nodes = 0

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise self._refusal(event, "a second YAML document starts here; a scenario is exactly one document")
                first = next(self._events)
                root = self._node(first, 1)
        if root is None or (isinstance(root, Scalar) and root.is_null):
            raise ScenarioError(
                f"{self._source}: file is empty; expected a mapping with keys version, name, seed, topology, training"
            )
        return root

    def _node(self, event: Any, depth: int) -> Node:
        self._check(event, depth)
        where = self._where(event)
        if isinstance(event, ScalarEvent):
            return Scalar(event.value, where, quoted=not event.implicit[0])
        if isinstance(event, SequenceStartEvent):
            sequence = Sequence(where)
            while not isinstance(event := next(self._events), SequenceEndEvent):
                sequence.items.append(self._node(event, depth + 1))
            return sequence
        assert isinstance(event, MappingStartEvent), event
        return self._mapping(where, depth)

    def _mapping(self, where: Where, depth: int) -> Mapping:
        mapping = Mapping(where)
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise self._refusal(event, "expected a key, got a list or mapping")
            if key.text == "<<" and not key.quoted:
                raise self._refusal(event, "YAML merge keys (<<) are not allowed")
            if key.text in mapping.keys:
                first = mapping.keys[key.text].line
                raise self._refusal(event, f"{key.text}: duplicate key (first at line {first})")
            mapping.keys[key.text] = key.where
            mapping.entries[key.text] = self._node(next(self._events), depth + 1)
        return mapping

    def _check(self, event: Any, depth: int) -> None:
        self._nodes += 1
        if isinstance(event, AliasEvent):
            raise self._refusal(event, f"YAML aliases (*{event.anchor}) are not allowed")
        if event.tag:
            raise self._refusal(event, f"YAML tag {event.tag} is not allowed")
        if event.anchor:
            raise self._refusal(event, f"YAML anchors (&{event.anchor}) are not allowed")
        if depth > MAX_DEPTH:
            raise self._refusal(event, f"nesting is deeper than {MAX_DEPTH} levels")
        if self._nodes > MAX_NODES:
            raise self._refusal(event, f"more than {MAX_NODES} values")

    def _where(self, event: Any) -> Where:
        return Where(self._source, event.start_mark.line + 1, event.start_mark.column + 1)

    def _refusal(self, event: Any, problem: str) -> ScenarioError:
        return ScenarioError(f"{self._where(event)}: {problem}")
