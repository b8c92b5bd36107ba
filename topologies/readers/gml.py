"""GML (Himsolt 1997): nested lists of keys and values. Read here, because networkx names no line and refuses the
Topology Zoo's repeated labels and edges."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.traces.model import TextFile

_TOKEN = re.compile(r'\s*(?:(#[^\n]*)|(\[)|(\])|"([^"]*)"|([^\s\[\]"]+))')
_VALUE = re.compile(r"[-+.0-9].*|nan|inf|none|true|false", re.IGNORECASE)
MAX_TOKENS = 2_000_000
MAX_DEPTH = 20


@dataclass(slots=True)
class Entries:
    """One list: (key, value or list, line)."""

    line: int
    items: list[tuple[str, str | Entries, int]] = field(default_factory=list)

    def lists(self, key: str) -> Iterator[Entries]:
        """All lists under a key."""
        return (value for name, value, _ in self.items if name == key and isinstance(value, Entries))

    def texts(self) -> dict[str, str]:
        """Plain values by key; of a repeated key the last."""
        return {name: value for name, value, _ in self.items if isinstance(value, str)}


def parse(file: TextFile) -> RawGraph:
    """The first graph of the file."""
    top = _Reader(file).read()
    graph = next(top.lists("graph"), None)
    if graph is None:
        file.refuse(None, "there is no 'graph [ … ]'", "is it GML?")
    vertices = []
    for node in graph.lists("node"):
        data = node.texts()
        if "id" not in data:
            file.refuse(node.line, "the node has no id", "write 'id 0'")
        vertices.append(RawVertex(data["id"], node.line, data))
    edges = []
    for edge in graph.lists("edge"):
        data = edge.texts()
        for end in ("source", "target"):
            if end not in data:
                file.refuse(edge.line, f"the edge has no {end}", f"write '{end} 0'")
        edges.append(RawEdge(data["source"], data["target"], edge.line, data))
    texts = graph.texts()
    return RawGraph(vertices, edges, texts.get("directed") == "1", data=texts)


class _Reader:
    """Tokens with their lines, and the lists that they make."""

    def __init__(self, file: TextFile) -> None:
        self._file, self._tokens = file, self._scan()

    def read(self) -> Entries:
        return self._list(Entries(0), 0)

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        text, place, line, count = self._file.text.rstrip(), 0, 1, 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                line += text.count("\n", place, len(text) - len(text[place:].lstrip()))
                self._file.refuse(line, "a text is not closed", 'add the missing "')
            line += text.count("\n", place, match.start(match.lastindex or 0))
            _, opening, closing, quoted, word = match.groups()
            count += 1
            if count > MAX_TOKENS:
                self._file.refuse(line, f"more than {MAX_TOKENS} words", "cut it")
            if opening or closing:
                yield "[" if opening else "]", "", line
            elif quoted is not None or word:
                yield ("text", html.unescape(quoted), line) if quoted is not None else ("word", word, line)
            line += (quoted or "").count("\n")
            place = match.end()

    def _list(self, entries: Entries, depth: int) -> Entries:
        if depth > MAX_DEPTH:
            self._file.refuse(entries.line, f"lists are nested deeper than {MAX_DEPTH}", "is it GML?")
        for kind, key, line in self._tokens:
            if kind == "]":
                if depth == 0:
                    self._file.refuse(line, "']' closes nothing", "remove it, or add the missing '['")
                return entries
            if kind != "word":
                what = "'['" if kind == "[" else f'"{key[:30]}"'
                self._file.refuse(line, f"expected a key, got {what}", "GML is 'key value' and 'key [ … ]'")
            entries.items.append((key, self._value(key, line, depth), line))
        if depth:
            self._file.refuse(entries.line, "the list that begins here is not closed", "add the missing ']'")
        return entries

    def _value(self, key: str, line: int, depth: int) -> str | Entries:
        token = next(self._tokens, None)
        if token is None or token[0] == "]":
            self._file.refuse(line, f"'{key[:30]}' has no value", "GML is 'key value' and 'key [ … ]'")
        if token[0] == "word" and not _VALUE.fullmatch(token[1]):
            cure = "texts stand in quotes; GML is 'key value' and 'key [ … ]'"
            self._file.refuse(line, f"'{key[:30]}' has no value, or one without quotes: {token[1][:30]}", cure)
        return self._list(Entries(token[2]), depth + 1) if token[0] == "[" else token[1]
