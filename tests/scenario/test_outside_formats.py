"""A topology reader and a trace format, each one file beside the scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario import load

READER = '''
from topologies.readers.base import GraphReader
from topologies.readers.raw import RawEdge, RawGraph, RawVertex


class Pairs(GraphReader):
    """Lines of two names and a rate in Mbit/s."""

    @staticmethod
    def parse(file):
        names, edges = {}, []
        for line, text in file.rows:
            words = text.split()
            if len(words) != 3:
                file.refuse(line, f"expected two names and a rate, got '{text}'", "e.g. east west 20")
            names |= dict.fromkeys(words[:2], line)
            edges.append(RawEdge(words[0], words[1], line, {"LinkSpeedRaw": words[2]}))
        return RawGraph([RawVertex(name, line) for name, line in names.items()], edges, default_unit="Mbit/s")
'''
FORMAT = '''
from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Trace


class Halves(TraceFormat):
    """One rate in Mbit/s a line, each for half a second."""

    about = "one rate a line, for half a second"

    @staticmethod
    def parse(file, reading):
        times_s = tuple(number / 2 for number in range(len(file.rows)))
        return Trace(times_s, tuple(float(text) * 1e6 for _, text in file.rows), reading.what)
'''
SCENARIO = """
version: 1
name: own
seed: 1
run: {on: simulate}
topology: {use: ./my.net, reader: ./pairs.py:Pairs, delay: 5 ms, central: east, workers: 1,
           links: [{from: east, to: west, rate_trace: {file: my.rates, format: ./halves.py:Halves}}]}
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"pairs.py": READER, "halves.py": FORMAT, "my.net": "east west 20\neast north 30\n", "my.rates": "4\n8\n"}
    for name, text in {**files, "own.yaml": SCENARIO}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own.yaml"


def test_they_are_read(scenario: Path) -> None:
    plan = build_plan(load(scenario))
    links = {link.name: link for link in plan.network.links}
    assert links["north>east"].rate_bps == 30e6 and links["west>east"].rate_bps == 20e6
    trace = links["east>west"].rate_trace
    assert trace is not None and (trace.times_s, trace.values) == ((0.0, 0.5), (4e6, 8e6))


def test_their_errors_name_the_line(scenario: Path) -> None:
    (scenario.parent / "my.net").write_text("east west 20\neast north\n")
    with pytest.raises(ScenarioError, match=r"own\.yaml:6:17: topology\.use: .*my\.net:2.*expected two names"):
        load(scenario)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("reader: ./pairs.py:Pairs", "reader: ./none.py:Pairs"), "topology.reader: .*none.py: no such file"),
        (
            ("reader: ./pairs.py:Pairs", "reader: ./halves.py:Halves"),
            "topology.reader: .*not a class that derives from",
        ),
        (("reader: ./pairs.py:Pairs, ", ""), "'.net' is no ending of a topology file .*or name a 'reader'"),
        (("./halves.py:Halves", "halved"), "format: 'halved' is not one of csv"),
    ],
)
def test_what_cannot_be_used_is_refused(scenario: Path, change: tuple[str, str], problem: str) -> None:
    scenario.write_text(scenario.read_text().replace(*change))
    with pytest.raises(ScenarioError, match=problem):
        load(scenario)


def test_code_of_a_scenario_from_elsewhere_is_not_imported(
    scenario: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(ScenarioError, match=r"topology\.reader: .*names code.*--allow-code"):
        load(scenario)
    assert build_plan(load(scenario, allow_code=True)).network.sites


@pytest.mark.parametrize(("page", "code"), [("topology", READER), ("trace", FORMAT)])
def test_the_documents_show_this_very_code(page: str, code: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "axes" / f"{page}.md").read_text(encoding="utf-8")
    assert f"```python\n{code.strip()}\n```" in text
