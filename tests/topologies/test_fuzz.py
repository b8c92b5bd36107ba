"""Whatever a file holds, reading it gives a graph or a trace, or a ScenarioError that begins with the file's name."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from tests.topologies.test_malformed_graphs import MALFORMED as GRAPHS
from tests.topologies.test_malformed_traces import MALFORMED as TRACES
from tests.topologies.zoo import GML, SNDLIB, TRIANGLE, graphml
from topologies.readers import GraphReading, parse_graph
from topologies.traces import FORMATS, Reading, parse_trace
from topologies.traces.model import WHAT, TextFile

TEXTS = st.text(max_size=300) | st.text(alphabet='0123456789., -eE\n[]{}":', max_size=200)
CORPUS = [case[1] for case in TRACES if len(case[1]) < 2000] + ["1\n2\n3\n", "0 1\n1 2\n", "time_s,loss\n0,0\n"]
FILES = [("t.gml", GML), ("t.xml", SNDLIB), ("t.graphml", graphml(*TRIANGLE)), *((c[1], c[2]) for c in GRAPHS)]
SPOILT = st.tuples(
    st.integers(0, 10**6), st.integers(0, 40), TEXTS | st.sampled_from(["", "-", "nan", "1e999", "\n", "]", "["])
)


def take(name: str, read: Callable[[], object]) -> None:
    try:
        read()
    except ScenarioError as error:
        assert str(error).startswith(name), str(error)


def spoil(text: str, how: tuple[int, int, str]) -> str:
    position, length, token = how
    position %= len(text) + 1
    return text[:position] + token + text[position + length :]


@given(TEXTS, st.sampled_from([None, *FORMATS]), st.sampled_from(WHAT))
def test_any_text_as_a_trace(text: str, kind: str | None, what: str) -> None:
    take("t.txt", lambda: parse_trace(text, "t.txt", Reading(format=kind, what=what)))


@given(st.sampled_from(CORPUS), SPOILT, st.sampled_from([None, *FORMATS]))
def test_a_spoilt_trace(text: str, how: tuple[int, int, str], kind: str | None) -> None:
    take("t.txt", lambda: parse_trace(spoil(text, how), "t.txt", Reading(format=kind)))


@given(st.sampled_from(FILES), SPOILT, st.booleans())
def test_a_spoilt_graph(file: tuple[str, str], how: tuple[int, int, str], filled: bool) -> None:
    name, text = file
    reading = GraphReading(rate_bps=1e6, delay_s=0.01, external=True) if filled else GraphReading()
    take(name, lambda: parse_graph(TextFile.of(name, spoil(text, how)), reading))


@given(TEXTS, st.sampled_from([".gml", ".xml", ".graphml"]))
def test_any_text_as_a_graph(text: str, ending: str) -> None:
    take(f"t{ending}", lambda: parse_graph(TextFile.of(f"t{ending}", text), GraphReading()))
