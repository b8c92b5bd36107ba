"""Parses XML into ``xml.etree`` elements with line numbers, and refuses document types (and so entities)."""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from topologies.text_file import TextFile

MAX_FILE_BYTES = 16 << 20
_MAX_ELEMENTS = 500_000
_LINE = " line"  # no attribute in a file can have this name, as it has a blank


def parse_xml(file: TextFile) -> Element:
    """Return the root element; tags have no namespace. Raise ``ScenarioError`` with the line if it is not valid."""
    parser = expat.ParserCreate("utf-8")  # whatever encoding the file declares, as its text is already decoded
    builder = TreeBuilder()
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MAX_ELEMENTS:
            file.refuse(parser.CurrentLineNumber, f"more than {_MAX_ELEMENTS} elements", "shorten the file")
        builder.start(tag.rpartition(":")[2], {**attributes, _LINE: str(parser.CurrentLineNumber)})

    def doctype(*_: object) -> None:
        file.refuse(parser.CurrentLineNumber, "has a document type", "remove the line <!DOCTYPE …>")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: builder.end(tag.rpartition(":")[2])
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(file.text.encode("utf-8"), True)
    except expat.ExpatError as error:
        problem = expat.errors.messages[error.code]
        file.refuse(error.lineno, f"not valid XML: {problem}", "is the file complete, and not a web page?")
    return builder.close()


def line_of(element: Element) -> int:
    """Return the line on which an element begins."""
    return int(element.attrib[_LINE])


def attribute(file: TextFile, element: Element, name: str) -> str:
    """Return an attribute's value. Raise ``ScenarioError`` if the element has none."""
    value = element.get(name)
    if not value:
        tag = element.tag.rpartition("}")[2]
        file.refuse(line_of(element), f"<{tag}> has no {name}", f'write <{tag} {name}="…">')
    return value


def text_of(element: Element | None) -> str:
    """Return an element's own text without surrounding blanks; empty for ``None``."""
    return "" if element is None else (element.text or "").strip()
