"""Presets: each is a scenario that is valid and trains; what a scenario says itself wins, or contradicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import testbed
from testbed.cli.main import main
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario import json_schema, load, loads
from testbed.scenario.presets import TECHNIQUE_AXES, presets, with_preset
from testbed.scenario.rules.facts import optimizer_place
from tests.engine.runs import run
from tests.for_each import for_each

FLAT = """
version: 1
name: flat
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}, {name: c, workers: 1}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 5 ms}, {between: [a, c], rate: 20 Mbit/s, delay: 5 ms}]
training: {model: {kind: mlp, hidden: 8}, data: digits, rounds: 12, evaluate_every: 12}
optimizer: {kind: adam, learning_rate: 0.02}
"""
OPTIMIZER = "optimizer: {kind: adam, learning_rate: 0.02}\n"
HIPS = FLAT.replace("central: true, workers: 1", "central: true, workers: 0").replace("b, workers: 1", "b, workers: 2")
HIPS = HIPS.replace("c, workers: 1", "c, workers: 2").replace("flat", "hips")
OWN = "paradigm: ps\nsync: {kind: ssp, staleness: 1}\norder: {kind: p3, slice: 8 KB}\n"
LOCAL_STEPS = (
    "hfa",
    "esync",
    "diloco",
    "quorum",
    "async_local_sgd",
    "halos",
    "streaming_diloco",
    "decoupled_diloco",
    "sparseloco",
)
SPARSE_SUMS = ("bisparse", "mpq", "deco_sgd")


def named(name: str, text: str = FLAT, more: str = "") -> testbed.Scenario:
    return loads(f"{text}technique: {name}\n{more}")


@for_each("name", presets())
@pytest.mark.parametrize("text", [FLAT, HIPS], ids=["flat", "hips"])
def test_a_preset_is_valid(text: str, name: str) -> None:
    text = text.replace(OPTIMIZER, "")
    scenario = named(name, text)
    assert scenario.technique == name
    assert loads(scenario.to_yaml()) == scenario
    place = "worker" if name in LOCAL_STEPS + SPARSE_SUMS else "global"
    assert optimizer_place(scenario) == place
    assert build_plan(scenario).technique.optimizer.options["at"] == place
    # instead of what a scenario has on the axes, too
    for other in (loads(text + OWN, overrides=[f"technique={name}"]), testbed.load(with_preset(_document(text), name))):
        assert build_plan(other) == build_plan(scenario)


@for_each("name", presets())
def test_a_preset_by_itself_repeats_nothing_that_is_sent_once_in_a_while(name: str) -> None:
    plan = build_plan(named(name, FLAT.replace(OPTIMIZER, "")))
    assert not [warning for warning in plan.warnings if "repeats it" in warning]


@for_each("kind, name", [("deco", "deco_sgd"), ("decoupled", "decoupled_diloco")])
def test_a_kind_that_is_no_preset_leads_to_its_preset(kind: str, name: str) -> None:
    with pytest.raises(ScenarioError, match=f"'{kind}' is a kind of 'sync'; did you mean '{name}'"):
        named(kind)


def _document(text: str) -> dict[str, object]:
    from ruamel.yaml import YAML

    document: dict[str, object] = YAML(typ="safe", pure=True).load(text + OWN)
    return document


@pytest.mark.parametrize("text", [FLAT, HIPS], ids=["flat", "hips"])
@for_each("name", presets())
def test_a_preset_trains(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "scenario.yaml").write_text(text, encoding="utf-8")
    done = run(tmp_path, f"technique={name}", scenario=tmp_path / "scenario.yaml")
    losses = [event["loss"] for event in done.of_kind("round")]
    workers = len(done.plan.training_workers)
    assert sum(losses[-2 * workers :]) < 0.95 * sum(losses[: 2 * workers])


@for_each(
    ("more", "path", "value"),
    [
        ("sync: {k1: 7}", "sync.tier2.options.k1", 7),
        ("sync: {k1: 7}", "sync.tier1.options.k2", 4),
        ("sync: hfa", "sync.tier2.options.k1", 5),
        ("sync: {tier1: {kind: hfa, k2: 3}, tier2: {k2: 3}}", "sync.tier1.options.k1", 5),
        ("sync:", "sync.tier2.options.k1", 5),
        ("codec: fp16", "codec.tier2.kind", "fp16"),
    ],
)
def test_what_a_scenario_says_itself_wins(more: str, path: str, value: object) -> None:
    found = named("hfa", more=more)
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value


@for_each(
    ("name", "more", "told"),
    [
        (
            "hfa",
            "sync: {kind: fsa}",
            "s.yaml:12:14: sync.kind: 'fsa' contradicts 'technique: hfa', which has 'hfa' "
            "there (remove it, or 'technique: hfa')",
        ),
        ("hfa", "sync: fsa", "s.yaml:12:7: sync.kind: 'fsa' contradicts 'technique: hfa'"),
        ("hfa", "sync: {tier1: fsa, tier2: fsa}", "sync.tier2.kind: 'fsa' contradicts 'technique: hfa'"),
        ("bisparse", "codec: fp16", "codec.tier2.kind: 'fp16' contradicts 'technique: bisparse'"),
        ("ring", "paradigm: {algorithm: tree}", "paradigm.algorithm: 'tree' contradicts 'technique: ring'"),
        ("hfaa", "", "s.yaml:11:12: technique: 'hfaa' is not one of"),
        ("hfaa", "", "did you mean 'hfa'?"),
        # nothing of the preset's own is contradicted, and the rules say what does not go with it
        ("hfa", "paradigm: ps", "with one tier there are no rounds inside a data centre to count (write 'k2: 1')"),
        ("fp16", "codec: {kind: fp16, ratio: 1}", "ratio: unknown key"),
    ],
)
def test_what_contradicts_is_refused_with_place_and_cure(name: str, more: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(f"{FLAT}technique: {name}\n{more}\n", "s.yaml")
    assert told in str(caught.value)


def test_the_optimizer_is_the_scenario_s_own_unless_the_technique_is_defined_by_another() -> None:
    with_sgd = FLAT.replace("kind: adam, learning_rate: 0.02", "kind: sgd, learning_rate: 0.1, momentum: 0.9")
    assert named("bisparse").optimizer.options.beta1 == 0.0
    assert named("bisparse", FLAT.replace("kind: adam,", "kind: adam, beta1: 0.5,")).optimizer.options.beta1 == 0.5
    assert named("bisparse", with_sgd).optimizer.options.momentum == 0.9
    with pytest.raises(ScenarioError, match=r"optimizer\.kind: 'adam' contradicts 'technique: mixedsync'"):
        named("mixedsync")
    replaced = loads(FLAT, overrides=["technique=mixedsync"])
    assert (replaced.optimizer.kind, replaced.optimizer.options.learning_rate) == ("dcasgd", 0.05)
    kept = loads(FLAT.replace("kind: adam", "kind: dcasgd"), overrides=["technique=mixedsync"])
    assert kept.optimizer.options.learning_rate == 0.02
    assert testbed.load(with_preset(_document(FLAT), "mixedsync")).optimizer == replaced.optimizer


def test_overrides_come_after_the_technique() -> None:
    scenario = loads(FLAT + "sync: tap\n", overrides=["sync.k1=9", "technique=hfa", "optimizer.learning_rate=0.5"])
    assert (scenario.sync.tier2.options.k1, scenario.optimizer.options.learning_rate) == (9, 0.5)
    with pytest.raises(ScenarioError, match=r"--set sync=fsa: sync.kind: 'fsa' contradicts 'technique: hfa'"):
        loads(FLAT, overrides=["technique=hfa", "sync=fsa"])
    assert loads(FLAT + "technique: hfa\n", overrides=["technique="]).sync.tier2.kind == "fsa"


@for_each(
    ("more", "place"),
    [
        ("", "global"),
        ("sync: hfa", "worker"),
        ("sync: {kind: hfa, k2: 1}\nparadigm: ps", "worker"),
        ("sync: hfa\nparadigm: allreduce", "global"),  # every worker steps anyway
        (
            "sync: {tier1: fsa, tier2: mixedsync}\ncodec: {tier1: none, tier2: {kind: bisparse, pull: sparse-sum}}",
            "global",
        ),
        ("codec: {tier1: none, tier2: {kind: bisparse, pull: sparse-sum}}", "worker"),
        ("codec: {tier1: none, tier2: bisparse}", "global"),
    ],
)
def test_the_optimizer_runs_where_the_techniques_need_it(more: str, place: str) -> None:
    assert optimizer_place(loads(FLAT + more)) == place
    written = loads(f"{FLAT.replace('0.02}', '0.02, at: auto}')}{more}")
    assert build_plan(written).technique.optimizer.options["at"] == place


def test_an_optimizer_for_servers_only_stays_there_and_is_refused_with_the_cure() -> None:
    with pytest.raises(ScenarioError, match="write 'at: worker', with optimizer: sgd, adam"):
        loads(FLAT.replace("adam", "dcasgd") + "sync: hfa")


GROWING = '''
from testbed.policy.sync.hfa import Hfa
from testbed.preset import Preset


class Growing(Hfa):
    """HFA by another name."""

    presets = (Preset(name="growing", summary="…", source="…", settings={"sync": {"k1": 3}}),)


class Unnamed(Hfa):
    """What declares none has not that of its base class."""
'''


def test_a_technique_of_a_user_s_file_has_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "growing.py").write_text(GROWING, encoding="utf-8")
    (tmp_path / "s.yaml").write_text(FLAT + "technique: ./growing.py:Growing\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    scenario = load(tmp_path / "s.yaml")
    assert scenario.sync.tier2.kind == f"{tmp_path / 'growing.py'}:Growing"
    assert scenario.sync.tier2.options.k1 == 3
    assert loads(scenario.to_yaml()) == scenario
    assert [file.path for file in build_plan(scenario).code] == [str(tmp_path / "growing.py")]
    for name, told in {
        "Unnamed": "'.*:Unnamed' declares no preset",
        "Missing": "defines no 'Missing'",
        "Preset": "not a technique of any of the axes",
    }.items():
        with pytest.raises(ScenarioError, match=told):
            load(tmp_path / "s.yaml", [f"technique=./growing.py:{name}"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ScenarioError, match="names code, but this file is not at or below the working directory"):
        load(tmp_path / "s.yaml")


def test_presets_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert testbed.presets()["hfa"].settings == {"sync": {"kind": "hfa", "k1": 5, "k2": 4}}
    assert all(set(preset.settings) <= {*TECHNIQUE_AXES, "optimizer"} for preset in presets().values())
    assert main(["schema", "technique", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["kinds"]
    assert [kind["name"] for kind in listed] == list(presets())
    assert json_schema()["properties"]["technique"]["anyOf"][0]["enum"] == list(presets())
    (tmp_path / "s.yaml").write_text(FLAT + "technique: bisparse\n", encoding="utf-8")
    assert main(["validate", str(tmp_path / "s.yaml")]) == 0
    assert "technique bisparse: codec: {tier1: none, tier2: {kind: bisparse, ratio: 0.05" in capsys.readouterr().out
    assert main(["validate", str(tmp_path / "s.yaml"), "--set", "technique=fp16", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["technique"]
    assert told == {"name": "fp16", "codec": "fp16", "optimizer": "{kind: adam, learning_rate: 0.02, at: global}"}
