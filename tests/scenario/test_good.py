"""Good scenarios: short and long forms, values set by path, techniques by name, and the resolved text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.paradigms import PARADIGMS
from testbed.plan.build import build_plan
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario import load, loads, starter
from testbed.scenario.overrides import texts_of
from testbed.scenario.reading.document import flow, parse, plain
from testbed.scenario.sweep import from_texts, read_techniques
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
        ("links[*].delay=2 ms", lambda s: s.topology.links[0].delay_s == 0.002),
        ("links[east-west].delay=3 ms", lambda s: s.topology.links[0].delay_s == 0.003),
        ("links[west-east].delay=4 ms", lambda s: s.topology.links[0].delay_s == 0.004),
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
    with pytest.raises(ScenarioError, match="'modelled' computes nothing, but real processes need values"):
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


@for_each(
    ("overrides", "tier1", "tier2"),
    [
        (["codec.tier2=fp16"], "none", "fp16"),
        (["codec.tier1.kind=fp16"], "fp16", "none"),
        (["codec=fp16", "codec.tier1=none"], "none", "fp16"),
        (["codec={kind: topk, ratio: 0.1}", "codec.tier1=none"], "none", "topk"),
        (["codec={tier1: none, tier2: topk}", "codec.tier2.ratio=0.1"], "none", "topk"),
    ],
)
def test_a_tier_of_an_axis_leaves_the_other_as_it_is(overrides: list[str], tier1: str, tier2: str) -> None:
    codec = loads(GOOD, overrides=overrides).codec
    assert (codec.tier1.kind, codec.tier2.kind) == (tier1, tier2)
    assert tier2 != "topk" or codec.tier2.options.ratio == 0.1


def test_an_option_of_an_axis_that_is_left_out_is_one_of_its_default() -> None:
    changed = loads(GOOD, overrides=["optimizer.learning_rate=0.1", "training.loading.kind=cached"])
    assert (changed.optimizer.kind, changed.optimizer.options.learning_rate) == ("adam", 0.1)
    with pytest.raises(ScenarioError, match=r"--set codec\.tier2\.ratio=0\.1: codec\.tier2\.ratio: unknown key"):
        loads(GOOD, overrides=["codec.tier2.ratio=0.1"])
    with pytest.raises(ScenarioError, match=r"optimizer\.tier1: unknown key"):
        loads(GOOD, overrides=["optimizer.tier1=adam"])


@for_each(
    ("value", "text"),
    [
        (np.float64(0.1), "0.1"),
        (np.int64(3), "3"),
        (np.bool_(True), "true"),
        (np.array([1, 2]), "[1, 2]"),
        (torch.tensor(0.5), "0.5"),
        (range(2), "[0, 1]"),
        (Path("x.csv"), "x.csv"),
        ({"kind": "sgd", "learning_rate": np.float64(1e-7)}, '{kind: "sgd", learning_rate: 0.0000001}'),
    ],
)
def test_numbers_of_libraries_are_numbers(value: Any, text: str) -> None:
    assert texts_of({"p": value}) == [f"p={text}"]


@for_each(
    "text",
    [
        "- python\n- -c\n- print(1, 2)\n- a b\n- http://a:1\n- x#y\n-\n- 'null'\n",
        "a: 'two\n\n  lines'\nb: |\n  two\n  lines\n'c: d': '{e}'\n",
        "[\"a\\\"b\", 'it''s', '', ' c ', '*d']",
    ],
)
def test_a_value_on_one_line_reads_back_as_it_was(text: str) -> None:
    node = parse(text, "s.yaml")
    assert "\n" not in flow(node)
    assert repr(plain(parse(flow(node), "s.yaml"))) == repr(plain(node))


ROOT = Path(__file__).parents[2]
ALL = ROOT / "scenarios/large/techniques.yaml"


def test_the_file_of_all_techniques_misses_none_that_both_worlds_can_run() -> None:
    found = {"sync": set(), "codec": set(), "order": set(), "overlay": set(), "shard": set(), "paradigm": set()}
    for settings in read_techniques(ALL).values():
        overrides = [f"{path}={value}" for path, value in settings.items()]
        technique = build_plan(load(ROOT / "scenarios/quickstart.yaml", overrides), "simulate").technique
        found["sync"].add(technique.sync_tier2.kind)
        found["codec"].add(technique.codec_tier2.kind)
        found["order"].add(technique.order.kind)
        found["overlay"].add(technique.overlay_tier2.kind)
        found["shard"].add(technique.shard.kind)
        found["paradigm"].add(technique.paradigm.kind)
    both_worlds = {kind for kind, options in PARADIGMS.items() if not options.library and not options.cuts_models}
    assert found == {
        "sync": set(SYNC),
        "codec": set(CODECS),
        "order": set(ORDERS),
        "overlay": set(OVERLAYS),
        "shard": set(SHARDS),
        "paradigm": both_worlds,
    }


@for_each(("text", "told"), [("fsa: hfa\n", "1:1: fsa: expected"), ("[fsa]\n", "expected a mapping")])
def test_what_is_no_technique_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=told):
        read_techniques(file)


@for_each("texts", [["a:sync=hfa", "a:sync=fsa"], ["a:sync=hfa;codec=fp16;sync=fsa"]])
def test_what_is_given_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(ScenarioError, match="already"):
        from_texts(texts)
