"""Graph files that cannot be taken: each refusal names the file, the line where there is one, and the cure."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.errors import ScenarioError
from tests.for_each import for_each
from tests.topologies.zoo import FIRST_LINE, GML, SNDLIB, TRIANGLE, edge, graphml, vertex
from topologies.readers import GraphReading, parse_graph
from topologies.text_file import TextFile

TWO = (vertex("0"), vertex("1"))
EDGE = FIRST_LINE + 2  # the line of an edge after two vertices

MALFORMED: list[tuple[str, str, str, dict[str, Any], str, str]] = [
    # what is wrong, file, text, how it is read, what is said (after the file's name), the cure
    ("ending", "t.json", "{}", {}, ": '.json' is not the ending of a known topology format", ".graphml"),
    (
        "a web page",
        "t.graphml",
        "<html><body>404<br></body></html>",
        {},
        ":1: not valid XML: mismatched tag",
        "web page",
    ),
    ("cut off", "t.graphml", graphml(*TRIANGLE)[:-30], {}, f":{FIRST_LINE + 5}: not valid XML", "complete"),
    ("entities", "t.graphml", '<!DOCTYPE x [<!ENTITY a "b">]>\n<graphml/>', {}, ":1: has a document type", "remove"),
    ("no graph", "t.graphml", "<graphml>\n</graphml>", {}, ":1: not GraphML: there is no <graph>", "<graph>"),
    ("empty graph", "t.graphml", graphml(), {}, ": has no vertices", "complete"),
    (
        "an undeclared key",
        "t.graphml",
        graphml('<node id="0"><data key="d99">1</data></node>\n'),
        {},
        f":{FIRST_LINE}: Bad GraphML data: no key d99",
        "declare it",
    ),
    ("a node without id", "t.graphml", graphml("<node/>\n"), {}, f":{FIRST_LINE}: <node> has no id", "write <node id="),
    (
        "an id twice",
        "t.graphml",
        graphml(vertex("0"), vertex("1"), vertex("0")),
        {},
        f":{EDGE}: node id '0' is used twice (also line {FIRST_LINE})",
        "another id",
    ),
    (
        "an edge to nowhere",
        "t.graphml",
        graphml(*TWO, edge("0", "5", raw="1e9")),
        {},
        f":{EDGE}: no node has the id '5'",
        "add",
    ),
    ("no links", "t.graphml", graphml(*TWO), {}, ": its 2 vertices have no links", "complete"),
    (
        "only other networks",
        "t.graphml",
        graphml(vertex("0", internal="0")),
        {},
        f":{FIRST_LINE}: all vertices belong to other networks",
        "'external: true'",
    ),
    # the Topology Zoo's defects
    (
        "no rate",
        "t.graphml",
        graphml(*TWO, edge("0", "1")),
        {},
        f":{EDGE}: the link from 'london' to 'paris' has no rate",
        "rate:",
    ),
    (
        "no coordinates",
        "t.graphml",
        graphml(vertex("0", place=(None, None)), vertex("1"), edge("0", "1", raw="1e9")),
        {},
        f":{EDGE}: the link from 'london' to 'paris' has no latency, and an end has no coordinates",
        "'delay: 5 ms'",
    ),
    (
        "rate 0",
        "t.graphml",
        graphml(*TWO, edge("0", "1", raw="0.0")),
        {},
        f":{EDGE}: LinkSpeedRaw '0.0' is not a rate",
        "remove it",
    ),
    (
        "Mbit/s as bit/s",
        "t.graphml",
        graphml(*TWO, edge("0", "1", raw="155")),
        {},
        f":{EDGE}: LinkSpeedRaw is 155, which would be 155 bit/s: another unit?",
        "'rate_unit: Mbit/s'",
    ),
    (
        "kbit/s against the label",
        "t.graphml",
        graphml(*TWO, edge("0", "1", raw="10000000", text="10 Gbps")),
        {},
        f":{EDGE}: LinkSpeedRaw is 1e+07 bit/s, but the link is labelled 1e+10 bit/s",
        "'rate_unit'",
    ),
    (
        "bit/s read as Gbit/s",
        "t.graphml",
        graphml(*TWO, edge("0", "1", raw="1e9")),
        {"rate_unit": "Gbit/s"},
        f":{EDGE}: a rate of 1e+18 bit/s is faster than any link",
        "'rate_unit'",
    ),
    (
        "exchanged coordinates",
        "t.graphml",
        graphml(vertex("0", place=(139.7, 35.7)), vertex("1"), edge("0", "1", raw="1e9")),
        {},
        f":{FIRST_LINE}: latitude 139.7, longitude 35.7: exchanged?",
        "exchange them",
    ),
    (
        "degrees and minutes",
        "t.graphml",
        graphml(vertex("0", place=("51°30'", "0")), vertex("1"), edge("0", "1", raw="1e9")),
        {},
        f":{FIRST_LINE}: Latitude '51°30'' is not a number",
        "decimal degrees",
    ),
    # GML
    ("gml: no graph", "t.gml", 'Creator "x"\n', {}, ": not valid GML: input contains no graph", "key [ … ]"),
    ("gml: open text", "t.gml", GML.replace('"Paris"', '"Paris'), {}, ":23: not valid GML", "texts in quotes"),
    ("gml: no id", "t.gml", GML.replace("    id 1\n", ""), {}, ": not valid GML: node #1 has no 'id'", "correct it"),
    (
        "gml: below a text of three lines",
        "t.gml",
        GML.replace("plain", "a,\n\nb").replace("1000000000.0", "5"),
        {},
        ":19: LinkSpeedRaw is 5, which would be 5 bit/s",
        "rate_unit",
    ),
    ("gml: deep", "t.gml", "a [ " * 10_000, {}, ": not valid GML: maximum recursion depth", "GML"),
    # SNDlib
    (
        "sndlib: GraphML named .xml",
        "t.xml",
        graphml(*TRIANGLE),
        {},
        ":1: not SNDlib's XML (the root is <graphml>)",
        ".graphml",
    ),
    (
        "sndlib: capacity",
        "t.xml",
        SNDLIB.replace("9920.0", "9920,0"),
        {},
        ":11: capacity '9920,0' is not a number",
        "9920.0",
    ),
    ("sndlib: bit/s", "t.xml", SNDLIB, {"rate_unit": "bit/s"}, "", ""),
    # what was asked of it
    (
        "no such site",
        "t.graphml",
        graphml(*TRIANGLE),
        {"sites": ("rome",)},
        ": no vertex is named 'rome'",
        "london, paris",
    ),
    (
        "no such unit",
        "t.graphml",
        graphml(*TRIANGLE),
        {"rate_unit": "Mbps"},
        ": rate_unit 'Mbps' is not known",
        "Mbit/s",
    ),
]
CASES = [case for case in MALFORMED if case[4]]


@for_each(("name", "text", "reading", "said", "cure"), [case[1:] for case in CASES])
def test_it_names_file_line_and_cure(name: str, text: str, reading: dict[str, Any], said: str, cure: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_graph(TextFile.of(name, text), GraphReading(**reading))
    message = str(caught.value)
    assert message.startswith(f"{name}{said}"), message
    assert cure in message[len(f"{name}{said}") :], message
    assert len(message.splitlines()) == 1


@for_each("declared", ["ISO-8859-1", "UTF-16", "u0tf-8"])
def test_the_text_is_what_counts_not_the_encoding_that_it_declares(declared: str) -> None:
    text = SNDLIB.replace("ISO-8859-1", declared).replace("ATLAng", "Zürich")
    assert "zurich" in parse_graph(TextFile.of("t.xml", text), GraphReading(delay_s=0.01)).nodes
