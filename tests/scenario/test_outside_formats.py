"""A topology reader and a trace format, each one file beside the scenario."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.code import check_code
from testbed.scenario import load
from testbed.scenario.look_up import network

EXAMPLES = Path(__file__).parents[1] / "testing" / "examples"
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
    for name in ("pairs.py", "halves.py", "my.net", "my.rates"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "own.yaml").write_text(SCENARIO)
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


def test_their_code_is_in_the_plan(scenario: Path) -> None:
    plan = build_plan(load(scenario))
    assert [(file.axis, Path(file.path).name) for file in plan.code] == [
        ("topology", "pairs.py"),
        ("trace", "halves.py"),
    ]
    check_code(plan)
    (scenario.parent / "halves.py").write_text((scenario.parent / "halves.py").read_text() + "\n")
    assert build_plan(load(scenario)).code[1].sha256 != plan.code[1].sha256
    with pytest.raises(ScenarioError, match=r"halves\.py: has changed since this run was planned"):
        check_code(plan)


def test_a_topology_file_names_no_code_either(
    scenario: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = "{between: [a, b], rate: 1 Mbit/s, delay: 5 ms, rate_trace: {file: my.rates, format: ./halves.py:Halves}}"
    (scenario.parent / "net.yaml").write_text(
        f"data_centers: [{{name: a, central: true}}, {{name: b}}]\nlinks: [{link}]\n"
    )
    scenario.write_text(
        f"{SCENARIO[: SCENARIO.index('topology')]}topology: {{use: net.yaml}}\n{SCENARIO[SCENARIO.index('training') :]}"
    )
    assert [file.axis for file in build_plan(load(scenario)).code] == ["trace"]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(ScenarioError, match=r"names code.*--allow-code"):
        load(scenario)
    for path in (scenario, scenario.parent / "net.yaml"):
        with pytest.raises(ScenarioError, match=r"names code.*--allow-code"):
            network(str(path))
        assert network(str(path), allow_code=True).topology.links
