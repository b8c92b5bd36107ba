"""XML to a small tree that remembers its lines (the standard library's does not). No entities, no document types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from topologies.traces.model import TextFile

MAX_FILE_BYTES = 16 << 20
MAX_ELEMENTS = 500_000


@dataclass(slots=True)
class Element:
    """One element, without its namespace."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[Element]:
        """The direct children of that tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, *path: str) -> Element | None:
        """The first element below, along a path of tags."""
        found: Element | None = self
        for tag in path:
            found = next(found.all(tag), None) if found else None
        return found


class _Builder:
    def __init__(self, file: TextFile) -> None:
        self._file, self._stack, self._count = file, [Element("", {}, 0)], 0
        self._parser = expat.ParserCreate("utf-8")  # whatever is declared: the text has been decoded already
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = lambda _: self._stack.pop()
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype

    def build(self) -> Element:
        try:
            self._parser.Parse(self._file.text.encode("utf-8"), True)
        except expat.ExpatError as error:
            problem = expat.errors.messages[error.code]
            self._file.refuse(error.lineno, f"not valid XML: {problem}", "is the file complete, and not a web page?")
        return self._stack[0].children[0]

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            self._file.refuse(self._parser.CurrentLineNumber, f"more than {MAX_ELEMENTS} elements", "cut it")
        element = Element(tag.rpartition(":")[2], attributes, self._parser.CurrentLineNumber)
        self._stack[-1].children.append(element)
        self._stack.append(element)

    def _characters(self, text: str) -> None:
        self._stack[-1].text += text

    def _doctype(self, *_: object) -> None:
        self._file.refuse(self._parser.CurrentLineNumber, "has a document type", "remove the line <!DOCTYPE …>")


def parse_xml(file: TextFile) -> Element:
    """The root element. Raises ``ScenarioError`` with the line."""
    return _Builder(file).build()
