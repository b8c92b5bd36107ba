"""Good scenarios: the short and the long forms, overrides, traces from files, and the resolved text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import json_schema, load, loads, starter
from testbed.scenario.topology.links import Queue
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

SCENARIOS = Path(__file__).parents[2] / "scenarios"
QUICKSTART = SCENARIOS / "quickstart.yaml"


def test_quickstart_is_what_it_says() -> None:
    scenario = load(QUICKSTART)
    assert [site.name for site in scenario.topology.data_centers] == ["virginia", "frankfurt", "tokyo"]
    assert scenario.run.on == "emulate"
    assert scenario.optimizer.options.learning_rate == 0.002
    assert any(link.rate_trace for link in scenario.topology.links)


def test_overrides_stay_with_the_scenario_that_they_are_given_to() -> None:
    """The same text is parsed once, and each reading has a tree and places of its own."""
    before = loads(GOOD, "a.yaml")
    assert loads(GOOD, "a.yaml", overrides=("training.rounds=77", "seed=5")).training.rounds == 77
    assert loads(GOOD, "a.yaml") == before
    for name in ("a.yaml", "b.yaml"):
        with pytest.raises(ScenarioError, match=rf"{name}:\d+:\d+: "):
            loads(GOOD + "unknown: 1\n", name)


def test_starter_loads_as_it_is() -> None:
    assert loads(starter()).name == "my-scenario"


@for_each("text", [GOOD, starter()])
def test_resolved_text_loads_to_the_same(text: str) -> None:
    scenario = loads(text)
    assert loads(scenario.to_yaml()) == scenario


def test_resolved_text_carries_the_trace_of_a_file() -> None:
    scenario = load(QUICKSTART)
    assert loads(scenario.to_yaml()) == scenario


def test_short_and_long_forms_are_the_same() -> None:
    long = "sync: {tier1: {kind: fsa}, tier2: {kind: fsa}}\ncodec: {kind: none}\norder: {kind: fifo}\n"
    assert loads(GOOD + long) == loads(GOOD + "sync: fsa\ncodec: none\norder: fifo\n") == loads(GOOD)


def test_no_is_a_name() -> None:
    scenario = loads(GOOD.replace("west", "no"))
    assert scenario.topology.data_centers[1].name == "no"


def test_quoted_values_are_the_same_as_plain_ones() -> None:
    assert loads(GOOD.replace("20 Mbit/s", "'20 Mbit/s'")) == loads(GOOD)


@for_each(
    ("override", "read"),
    [
        ("training.rounds=50", lambda s: s.training.rounds == 50),
        ("links[0].rate=5 Mbit/s", lambda s: s.topology.links[0].rate == 5e6),
        ("links[*].delay=2 ms", lambda s: s.topology.links[0].delay == 0.002),
        ("topology.links[*].queue=1.5 bdp", lambda s: s.topology.links[0].queue == Queue("bdp", 1.5)),
        ("data_centers[west].workers=5", lambda s: s.topology.data_centers[1].workers == 5),
        ("data_centers[west].device.speed=0.5", lambda s: (s.topology.data_centers[1].device or s.device).speed == 0.5),
        ("model={kind: mlp, hidden: 32}", lambda s: getattr(s.training.model.options, "hidden", 0) == 32),
        ("training.model.kind=mlp", lambda s: s.training.model.kind == "mlp"),
        ("optimizer.learning_rate=0.5", lambda s: s.optimizer.options.learning_rate == 0.5),
        ("lan.rate=10 Gbit/s", lambda s: s.topology.lan.rate == 1e10),
        ("target_accuracy=null", lambda s: s.training.target_accuracy is None),
        ("name=other", lambda s: s.name == "other"),
    ],
)
def test_overrides(override: str, read) -> None:  # type: ignore[no-untyped-def]
    text = GOOD.replace("rounds: 100", "rounds: 100, target_accuracy: 0.9") + "optimizer: {kind: adam}\n"
    assert not read(loads(text))
    assert read(loads(text, overrides=[override]))


def test_later_overrides_win() -> None:
    assert loads(GOOD, overrides=["seed=1", "seed=2"]).seed == 2


def test_a_trace_can_be_taken_away() -> None:
    scenario = load(QUICKSTART, ["links[*].rate_trace=null", "links[*].rate=5 Mbit/s"])
    assert {(link.rate, link.rate_trace) for link in scenario.topology.links} == {(5e6, None)}


def test_trace_file_is_read_and_named() -> None:
    (trace,) = [link.rate_trace for link in load(QUICKSTART).topology.links if link.rate_trace]
    assert trace.source == "traces/evening-peak.csv"
    assert (trace.points[0].at, trace.points[0].rate) == (0.0, 20e6)


def test_trace_file_needs_a_folder() -> None:
    text = GOOD.replace("delay: 40 ms", "delay: 40 ms, rate_trace: {file: x.csv}")
    with pytest.raises(ScenarioError, match="relative to a scenario file"):
        loads(text)


def test_trace_file_with_a_mistake_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time_s,rate_mbit_s\n0,1\n5,x\n", encoding="utf-8")
    text = GOOD.replace("delay: 40 ms", "delay: 40 ms, rate_trace: {file: t.csv}")
    with pytest.raises(ScenarioError, match=r"links\[0\]\.rate_trace: t\.csv:3: expected two numbers"):
        loads(text, folder=tmp_path)


def test_trace_file_may_not_be_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.csv").write_text("time_s,rate_mbit_s\n0,1\n", encoding="utf-8")
    (tmp_path / "inside" / "link.csv").symlink_to(tmp_path / "secret.csv")
    text = GOOD.replace("delay: 40 ms", "delay: 40 ms, rate_trace: {file: link.csv}")
    with pytest.raises(ScenarioError, match="outside the scenario's folder"):
        loads(text, folder=tmp_path / "inside")


def test_place_of_a_value() -> None:
    assert str(loads(GOOD, "s.yaml").place_of("topology", "links", 0, "rate")) == "s.yaml:9:37"


def test_json_schema_knows_the_axes() -> None:
    schema = json_schema()
    json.dumps(schema)
    assert {"version", "name", "seed", "topology", "training"} == set(schema["required"])
    assert schema["additionalProperties"] is False
    text = json.dumps(schema)
    assert '"fsa"' in text and "step size" in text and "One-way delay" in text


def test_every_key_has_words_for_the_editor() -> None:
    def missing(schema: dict) -> list[str]:  # type: ignore[type-arg]
        sections = {"Scenario": schema, **schema["$defs"]}
        return [
            f"{name}.{key}"
            for name, section in sections.items()
            for key, value in section.get("properties", {}).items()
            if "description" not in value and key not in ("kind", "name")
        ]

    assert missing(json_schema()) == []


def test_the_back_end_asked_for_is_the_one_that_is_validated(tmp_path: Path) -> None:
    """A scenario that one back end refuses may be good on another one."""
    modelled = ("training.compute=modelled",)
    with pytest.raises(ScenarioError, match="'modelled' computes nothing, and real processes need values"):
        loads(GOOD, overrides=modelled)
    assert loads(GOOD, overrides=modelled, on="simulate").run.on == "simulate"
    with pytest.raises(ScenarioError, match=r"--on loacl: run.on: 'loacl' is not one of emulate, "):
        loads(GOOD, overrides=("run.on=simulate",), on="loacl")
    simulated = ("training.compute=modelled", "run.on=simulate")
    loads(GOOD, overrides=simulated)
    with pytest.raises(ScenarioError, match="real processes need values"):
        loads(GOOD, overrides=simulated, on="local")
    (tmp_path / "s.yaml").write_text(GOOD, encoding="utf-8")
    assert load(tmp_path / "s.yaml", modelled, on="simulate").run.on == "simulate"


def test_a_folder_of_its_name_does_not_hide_a_shipped_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    assert load("quickstart").name == "quickstart"
