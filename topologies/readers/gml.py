"""GML (Himsolt 1997), as the Internet Topology Zoo and Shadow write it. networkx parses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import networkx as nx

from topologies.readers.raw import RawEdge, RawGraph, RawVertex
from topologies.text_file import TextFile

_NUMBER = "testbedNumber"  # the key for the number of a node or edge in the file; no file has such a key
_TOKEN = re.compile(
    r'"(?P<text>[^"]*)"|(?P<comment>#[^\n]*)|(?<!\S)(?P<number>[-+]?[0-9]+)(?P<exponent>[eE][-+]?[0-9]+)(?!\S)'
    r"|\b(?P<list>graph|node|edge)\s*\[|\n"
)
_PLACE = re.compile(r" at \((\d+), \d+\)$")  # line and column, at the end of networkx's errors
_MAX_MESSAGE = 200  # characters: an error of networkx may quote the rest of a line


def parse(file: TextFile) -> RawGraph:
    """Return the graph of the file. Raise ``ScenarioError``, with the line if networkx names one."""
    text, lines = _repaired(file.text)
    try:
        graph = nx.parse_gml(text, label="id")
    except Exception as error:  # a broken file raises errors of many kinds
        message = " ".join(str(error).split()) or type(error).__name__
        place = _PLACE.search(message)
        problem = _PLACE.sub("", message)[:_MAX_MESSAGE]
        cure = "correct it: GML is 'key value' and 'key [ … ]', with texts in quotes"
        file.refuse(int(place[1]) if place else None, f"not valid GML: {problem}", cure)
    vertices = [RawVertex(str(name), lines[data.pop(_NUMBER)], _texts(data)) for name, data in graph.nodes(data=True)]
    edges = [
        RawEdge(str(source), str(target), lines[data.pop(_NUMBER)], _texts(data))
        for source, target, data in sorted(graph.edges(data=True), key=lambda edge: edge[2][_NUMBER])
    ]
    return RawGraph(vertices, edges, graph.is_directed())


def _repaired(text: str) -> tuple[str, list[int]]:
    """Return the text in a form that networkx accepts, and a list with the line of each numbered node and edge.

    Files of the Topology Zoo have parallel edges without ``multigraph 1``, numbers such as ``1e9``, and texts over
    several lines. The repaired text has the same line numbers.
    """
    lines: list[int] = []
    line = 1

    def repaired(token: re.Match[str]) -> str:
        nonlocal line
        line += token[0].count("\n")
        if token["list"] == "graph":
            return f"{token[0]} multigraph 1 "
        if token["list"]:
            lines.append(line)
            return f"{token[0]} {_NUMBER} {len(lines) - 1} "
        if token["number"]:
            return f"{token['number']}.0{token['exponent']}"
        if token["comment"]:
            return ""
        if token["text"] is not None:
            return f'"{" ".join(token["text"].splitlines())}"' + "\n" * token["text"].count("\n")
        return token[0]

    return _TOKEN.sub(repaired, text), lines


def _texts(data: Mapping[str, Any]) -> dict[str, str]:
    """Return plain values as texts; of a repeated key, the last one. Lists such as ``graphics`` are left out."""
    texts = {}
    for key, value in data.items():
        last = value[-1] if isinstance(value, list) and value else value
        if isinstance(last, str | int | float):
            texts[key] = str(last)
    return texts
