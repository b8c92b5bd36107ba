"""Techniques from outside: by file, dotted path and installed name; whose code may be imported, and which errors."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from testbed import axes
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.policy.sync import SYNC
from testbed.scenario import json_schema, load, loads
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
    assert plan.technique.sync_tier1.options == {"k1": 4, "k2": 10, "weights": "party", "warm": 7}
    assert SYNC.options(kind, plan.technique.sync_tier1.options).warm == 7
    assert loads(read.to_yaml()) == read


def test_a_file_that_has_been_edited_is_read_anew(scenario: Path) -> None:
    load(scenario)
    (scenario.parent / "warm.py").write_text(WARM.replace("warm: int", "hot: int"), encoding="utf-8")
    sync = load(scenario, ["sync={kind: './warm.py:WarmHfa', k1: 4, hot: 3}"]).sync.tier1
    assert sync.options.hot == 3 and sync.declared is SYNC[sync.kind]


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


def test_workers_share_no_norms_for_an_optimizer_that_takes_its_own() -> None:
    """Each would step with a share of a tensor, as if it were the whole."""
    whole = Path(__file__).parents[1] / "testing/examples/optimizer_normalises.py"
    scenario = GOOD + f"optimizer: {whole}:NormalisesWholes\n"
    loads(scenario, overrides=["paradigm=allreduce"])
    for work in ("norms", "update"):
        with pytest.raises(ScenarioError, match=r"optimizer_work: .* takes what it needs of a tensor by itself"):
            loads(scenario, overrides=[f"paradigm={{kind: allreduce, optimizer_work: {work}}}"])


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
    with pytest.raises(ScenarioError, match=r"'of_a_cell:WarmHfa' is in no file .write it into one"):
        loads(GOOD + "sync: of_a_cell:WarmHfa\noptimizer: {kind: adam, at: worker}\n")


def test_a_dotted_path() -> None:
    read = loads(GOOD + "sync: testbed.policy.sync.fsa:Bsp\norder: testbed.policy.order.p3:P3\n")
    assert read.sync.tier1.kind == "testbed.policy.sync.fsa:Bsp"
    assert read.order.declared.overlaps(read.order.options)


def test_rules_hold_for_techniques_from_outside(scenario: Path) -> None:
    with pytest.raises(ScenarioError, match=r"optimizer: with '.*WarmHfa' the optimizer runs on the workers"):
        load(scenario, ["optimizer=adam"])
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


def test_a_mistake_in_a_file_that_it_imports_is_not_at_a_line_of_its_own(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(scenario.parent)
    (scenario.parent / "broken_helper.py").write_text("\n\n\n\n\ndef f(:\n", encoding="utf-8")
    (scenario.parent / "warm.py").write_text("\nimport broken_helper\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"imported: line 2: SyntaxError: .*broken_helper.py, line 6"):
        load(scenario)


def test_code_of_a_scenario_from_elsewhere_is_not_imported(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_installed_name_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="broken", value="no_such_package:Fsa", group="testbed.sync")
    monkeypatch.setattr(axes, "installed", lambda axis: {"broken": point} if axis == "sync" else {})
    with pytest.raises(ScenarioError, match=r"s.yaml:11:7: sync: 'broken' cannot be imported: ModuleNotFoundError"):
        loads(GOOD + "sync: broken\n", "s.yaml")


def test_the_json_schema_takes_paths_on_open_axes() -> None:
    forms = json_schema()["properties"]["sync"]["anyOf"]
    assert any("pattern" in form for form in forms)
    assert any(form.get("required") == ["kind"] and "pattern" in form["properties"]["kind"] for form in forms)
    assert not any("pattern" in form for form in json_schema()["properties"]["paradigm"]["anyOf"])


def test_equal_files_of_two_folders_are_two_modules(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text("from pathlib import Path\nFOLDER = Path(__file__).parent.name\n")
    found = [axes.import_code(f"{tmp_path / name / 'own.py'}:FOLDER") for name in ("a", "b", "a")]
    assert found == ["a", "b", "a"]
