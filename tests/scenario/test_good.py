"""Good scenarios: the short and the long forms, overrides, traces from files, and the resolved text."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import load, loads, starter
from testbed.scenario.topology.links import Queue
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD


def test_overrides_stay_with_the_scenario_that_they_are_given_to() -> None:
    """The same text is parsed once, and each reading has a tree and places of its own."""
    before = loads(GOOD, "a.yaml")
    assert loads(GOOD, "a.yaml", overrides=("training.rounds=77", "seed=5")).training.rounds == 77
    assert loads(GOOD, "a.yaml") == before
    for name in ("a.yaml", "b.yaml"):
        with pytest.raises(ScenarioError, match=rf"{name}:\d+:\d+: "):
            loads(GOOD + "unknown: 1\n", name)


@for_each("text", [GOOD, starter()])
def test_resolved_text_loads_to_the_same(text: str) -> None:
    scenario = loads(text)
    assert loads(scenario.to_yaml()) == scenario


def test_short_and_long_forms_are_the_same() -> None:
    long = "sync: {tier1: {kind: fsa}, tier2: {kind: fsa}}\ncodec: {kind: none}\norder: {kind: fifo}\n"
    assert loads(GOOD + long) == loads(GOOD + "sync: fsa\ncodec: none\norder: fifo\n") == loads(GOOD)


@for_each(
    ("override", "read"),
    [
        ("training.rounds=50", lambda s: s.training.rounds == 50),
        ("links[*].delay=2 ms", lambda s: s.topology.links[0].delay == 0.002),
        ("topology.links[*].queue=1.5 bdp", lambda s: s.topology.links[0].queue == Queue("bdp", 1.5)),
        ("data_centers[west].workers=5", lambda s: s.topology.data_centers[1].workers == 5),
        ("data_centers[west].device.speed=0.5", lambda s: (s.topology.data_centers[1].device or s.device).speed == 0.5),
        ("model={kind: mlp, hidden: 32}", lambda s: getattr(s.training.model.options, "hidden", 0) == 32),
        ("training.model.kind=mlp", lambda s: s.training.model.kind == "mlp"),
        ("target_accuracy=null", lambda s: s.training.target_accuracy is None),
    ],
)
def test_overrides(override: str, read) -> None:  # type: ignore[no-untyped-def]
    text = GOOD.replace("rounds: 100", "rounds: 100, target_accuracy: 0.9") + "optimizer: {kind: adam}\n"
    assert not read(loads(text))
    assert read(loads(text, overrides=[override]))


def test_trace_file_may_not_be_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.csv").write_text("time_s,rate_mbit_s\n0,1\n", encoding="utf-8")
    (tmp_path / "inside" / "link.csv").symlink_to(tmp_path / "secret.csv")
    text = GOOD.replace("delay: 40 ms", "delay: 40 ms, rate_trace: {file: link.csv}")
    with pytest.raises(ScenarioError, match="outside the scenario's folder"):
        loads(text, folder=tmp_path / "inside")


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
