"""GML (Himsolt 1997): nested lists of keys and values.

``networkx.read_gml`` is not used: it names no line for most mistakes, and it refuses files of the Topology Zoo, which
have parallel edges without ``multigraph 1``, numbers such as ``1e9`` and texts with empty lines.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.text_file import TextFile

_TOKEN = re.compile(
    r'(?P<comment>#[^\n]*)|(?P<open>\[)|(?P<close>\])|"(?P<text>[^"]*)"|(?P<word>[^\s\[\]"]+)|(?P<open_text>")'
)
_VALUE = re.compile(r"[-+.0-9].*|nan|inf|none|true|false", re.IGNORECASE)
_FORM = "GML is 'key value' and 'key [ … ]'"
MAX_TOKENS = 2_000_000
MAX_DEPTH = 20


@dataclass(slots=True)
class Entries:
    """One list: its line, and (key, value or list) in the file's order."""

    line: int
    items: list[tuple[str, str | Entries]] = field(default_factory=list)

    def lists(self, key: str) -> Iterator[Entries]:
        """Yield all lists under a key."""
        return (value for name, value in self.items if name == key and isinstance(value, Entries))

    def texts(self) -> dict[str, str]:
        """Return plain values by key; of a repeated key the last."""
        return {name: value for name, value in self.items if isinstance(value, str)}


def parse(file: TextFile) -> RawGraph:
    """Return the first graph of the file."""
    graph = next(_read(file).lists("graph"), None)
    if graph is None:
        file.refuse(None, "there is no 'graph [ … ]'", "is it GML?")
    vertices = [
        RawVertex(_texts(file, node, "node", "id")["id"], node.line, node.texts()) for node in graph.lists("node")
    ]
    edges = []
    for edge in graph.lists("edge"):
        data = _texts(file, edge, "edge", "source", "target")
        edges.append(RawEdge(data["source"], data["target"], edge.line, data))
    return RawGraph(vertices, edges, graph.texts().get("directed") == "1")


def _texts(file: TextFile, entries: Entries, what: str, *needed: str) -> dict[str, str]:
    data = entries.texts()
    for key in needed:
        if key not in data:
            file.refuse(entries.line, f"the {what} has no {key}", f"write '{key} 0'")
    return data


def _tokens(file: TextFile) -> Iterator[tuple[str, str, int]]:
    """Yield kind, content and line of every token; kinds are the groups of ``_TOKEN``."""
    line, place = 1, 0
    for number, match in enumerate(_TOKEN.finditer(file.text)):
        line += file.text.count("\n", place, match.start())
        place = match.start()
        if number > MAX_TOKENS:
            file.refuse(line, f"more than {MAX_TOKENS} words", "shorten the file")
        kind = str(match.lastgroup)
        if kind == "open_text":
            file.refuse(line, "a text is not closed", 'add the missing "')
        if kind != "comment":
            yield kind, match[kind], line


def _read(file: TextFile) -> Entries:
    """Return the file as one list."""
    lists, key, key_line = [Entries(0)], "", 0
    for kind, content, line in _tokens(file):
        if key and kind != "close":
            value = Entries(line) if kind == "open" else _value(file, key, kind, content, key_line)
            lists[-1].items.append((key, value))
            key = ""
            if isinstance(value, Entries):
                lists.append(value)
        elif key:
            file.refuse(key_line, f"'{key[:30]}' has no value", _FORM)
        elif kind == "close" and len(lists) == 1:
            file.refuse(line, "']' closes nothing", "remove it, or add the missing '['")
        elif kind == "close":
            lists.pop()
        elif kind == "word":
            key, key_line = content, line
        else:
            what = "'['" if kind == "open" else f'"{content[:30]}"'
            file.refuse(line, f"expected a key, got {what}", _FORM)
        if len(lists) > MAX_DEPTH:
            file.refuse(line, f"lists are nested deeper than {MAX_DEPTH}", "is it GML?")
    if key:
        file.refuse(key_line, f"'{key[:30]}' has no value", _FORM)
    if len(lists) > 1:
        file.refuse(lists[-1].line, "the list that begins here is not closed", "add the missing ']'")
    return lists[0]


def _value(file: TextFile, key: str, kind: str, content: str, line: int) -> str:
    if kind == "text":
        return html.unescape(content)
    if not _VALUE.fullmatch(content):
        cure = f"texts stand in quotes; {_FORM}"
        file.refuse(line, f"'{key[:30]}' has no value, or one without quotes: {content[:30]}", cure)
    return content
