"""Techniques and formats from outside: how they are named, whose code may be imported, and which errors there are."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from testbed import axes
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.code import check_code
from testbed.policy.sync import SYNC
from testbed.scenario import json_schema, load, loads
from testbed.scenario.look_up import network
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

WARM = '''
from dataclasses import dataclass, field

from testbed.policy.sync.hfa import Hfa


class WarmHfa(Hfa):
    """HFA whose first rounds have one local step."""

    @dataclass(frozen=True, slots=True)
    class Options(Hfa.Options):
        warm: int = field(default=5, metadata={"help": "rounds with one local step", "max": 100})
'''
SCENARIO = GOOD + "sync: {kind: './warm.py:WarmHfa', k1: 4, warm: 7}\noptimizer: {kind: adam, at: worker}\n"


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario in the working directory that names the file beside it."""
    (tmp_path / "warm.py").write_text(WARM, encoding="utf-8")
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "s.yaml"


def test_a_file_beside_the_scenario(scenario: Path) -> None:
    read = load(scenario)
    kind = f"{scenario.parent / 'warm.py'}:WarmHfa"
    assert (read.sync.tier1.kind, read.sync.tier2.kind) == (kind, kind)
    plan = build_plan(read)
    assert plan.technique.sync_tier1.kind == kind
    own = {"k1": 4, "k2": 10, "weights": "party", "warm": 7}
    assert plan.technique.sync_tier1.options == {**own, "first_moments": 0, "second_moments": 0}
    assert SYNC.options(kind, plan.technique.sync_tier1.options).warm == 7
    assert loads(read.to_yaml()) == read


@for_each(
    ("option", "told"),
    [
        ("float | None = field(default=None, metadata={'help': '…'})", "'warm' is float | None; a scenario gives bool"),
        ("float = field(default=1.0, metadata={'help': '…', 'unit': 'ms'})", "'warm' has the unit 'ms'; a scenario kn"),
    ],
)
def test_an_option_that_no_scenario_could_give_is_named(scenario: Path, option: str, told: str) -> None:
    before, _, after = WARM.partition("warm: int = field")
    (scenario.parent / "warm.py").write_text(f"{before}warm: {option}{after.partition(')')[2]}", encoding="utf-8")
    with pytest.raises(ScenarioError, match=re.escape(f"option {told}")):
        load(scenario)


def test_code_that_changes_after_it_was_imported_is_not_taken_for_what_runs(scenario: Path) -> None:
    """A simulation in this process would run the class of before, under the hash of the new file."""
    read = load(scenario)
    (scenario.parent / "warm.py").write_text(f"{WARM}\n# changed\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"warm\.py: has changed since it was imported \(load the scenario again\)"):
        build_plan(read)
    assert build_plan(load(scenario)).code[0].sha256 == axes.sha256_of(scenario.parent / "warm.py")


def test_a_class_without_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that a notebook's cell defines."""
    module = ModuleType("of_a_cell")
    monkeypatch.setitem(sys.modules, "of_a_cell", module)
    exec(WARM, module.__dict__)
    with pytest.raises(ScenarioError, match=r"'of_a_cell:WarmHfa' is not defined in a file .define it in one"):
        loads(GOOD + "sync: of_a_cell:WarmHfa\noptimizer: {kind: adam, at: worker}\n")


def test_rules_hold_for_techniques_from_outside(scenario: Path) -> None:
    with pytest.raises(ScenarioError, match=r"optimizer: with '.*WarmHfa' the optimizer runs on the workers"):
        load(scenario, ["optimizer={kind: adam, at: global}"])
    with pytest.raises(ScenarioError, match=r"sync.*: with one tier there are no rounds inside a data centre"):
        load(scenario, ["paradigm=ps"])


@for_each(
    ("override", "told"),
    [
        ("sync.wram=3", "sync.wram: unknown key (did you mean 'warm'?)"),
        ("sync.warm=101", "sync.warm: 101 is outside [0, 100]"),
        ("sync=./gone.py:Warm", "gone.py: no such file (the path is relative to the scenario's folder)"),
        ("sync=./warm.py:Cold", "defines no 'Cold'"),
        ("sync=./warm.py:field", "is not a class that derives from testbed.policy.sync.base.SyncPolicy"),
        ("sync=no_such_package.mod:Warm", "cannot be imported: ModuleNotFoundError"),
        ("sync=warm", "sync: 'warm' is not one of fsa, mixedsync"),
        ("loading=x.y:Z", "training.loading: 'x.y:Z' is not one of in_memory, cached"),
    ],
)
def test_what_is_wrong_has_its_place_and_cause(scenario: Path, override: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(scenario, [override])
    assert told in str(caught.value)


def test_a_file_that_cannot_be_imported_names_the_line(scenario: Path) -> None:
    (scenario.parent / "warm.py").write_text("x = 1\nraise RuntimeError('my data set is missing')\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match="line 2: RuntimeError: my data set is missing"):
        load(scenario)


def test_code_of_a_scenario_from_elsewhere_is_not_imported(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("testbed_code_")]:
        monkeypatch.delitem(sys.modules, name)  # of an earlier run of this test in this process, in an equal folder
    mark = scenario.parent / "imported"
    (scenario.parent / "warm.py").write_text(f"open({str(mark)!r}, 'w').close()\n{WARM}", encoding="utf-8")
    elsewhere = scenario.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for overrides in ((), ("seed=x",)):
        with pytest.raises(ScenarioError, match=r"s.yaml:11:14: sync.kind: '.*WarmHfa' names code.*--allow-code"):
            load(scenario, overrides)
    with pytest.raises(ScenarioError, match="names code"):
        load(scenario, ["sync={tier1: fsa, tier2: 'os:path'}"])
    assert not mark.exists()
    assert load(scenario, allow_code=True).sync.tier1.kind.endswith("warm.py:WarmHfa")
    assert mark.exists()


def test_an_installed_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="other_fsa", value="testbed.policy.sync.fsa:Fsa", group="testbed.sync")
    monkeypatch.setattr(SYNC, "_loaded", {})
    monkeypatch.setattr(axes, "installed", lambda axis: {"other_fsa": point} if axis == "sync" else {})
    assert loads(GOOD + "sync: other_fsa\n").sync.tier2.kind == "other_fsa"
    assert '"other_fsa"' in json.dumps(json_schema())


EXAMPLES = Path(__file__).parents[1] / "testing" / "examples"
OWN = """
version: 1
name: own
seed: 1
run: {on: simulate}
topology: {use: ./my.net, reader: ./pairs.py:Pairs, delay: 5 ms, central: east, workers: 1,
           links: [{from: east, to: west, rate_trace: {file: my.rates, format: ./halves.py:Halves}}]}
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("pairs.py", "halves.py", "my.net", "my.rates"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "own.yaml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own.yaml"


def test_they_are_read(own: Path) -> None:
    plan = build_plan(load(own))
    links = {link.name: link for link in plan.network.links}
    assert links["north>east"].rate_bps == 30e6 and links["west>east"].rate_bps == 20e6
    trace = links["east>west"].rate_trace
    assert trace is not None and (trace.times_s, trace.values) == ((0.0, 0.5), (4e6, 8e6))


def test_their_errors_name_the_line(own: Path) -> None:
    (own.parent / "my.net").write_text("east west 20\neast north\n")
    with pytest.raises(ScenarioError, match=r"own\.yaml:6:17: topology\.use: .*my\.net:2.*expected two names"):
        load(own)


def test_their_code_is_in_the_plan(own: Path) -> None:
    plan = build_plan(load(own))
    assert [(file.axis, Path(file.path).name) for file in plan.code] == [
        ("topology", "pairs.py"),
        ("trace", "halves.py"),
    ]
    check_code(plan)
    (own.parent / "halves.py").write_text((own.parent / "halves.py").read_text() + "\n")
    assert build_plan(load(own)).code[1].sha256 != plan.code[1].sha256
    with pytest.raises(ScenarioError, match=r"halves\.py: has changed since this run was planned"):
        check_code(plan)


def test_a_topology_file_names_no_code_either(
    own: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = "{between: [a, b], rate: 1 Mbit/s, delay: 5 ms, rate_trace: {file: my.rates, format: ./halves.py:Halves}}"
    (own.parent / "net.yaml").write_text(f"data_centers: [{{name: a, central: true}}, {{name: b}}]\nlinks: [{link}]\n")
    own.write_text(f"{OWN[: OWN.index('topology')]}topology: {{use: net.yaml}}\n{OWN[OWN.index('training') :]}")
    assert [file.axis for file in build_plan(load(own)).code] == ["trace"]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(ScenarioError, match=r"names code.*--allow-code"):
        load(own)
    for path in (own, own.parent / "net.yaml"):
        with pytest.raises(ScenarioError, match=r"names code.*--allow-code"):
            network(str(path))
        assert network(str(path), allow_code=True).topology.links
