"""Whatever is thrown at it, reading a scenario gives a scenario or a ScenarioError; so does planning it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import from_json, to_json
from testbed.scenario import BACK_ENDS, loads, starter
from testbed.scenario.compatibility import REFUSED
from tests.scenario.test_bad import GOOD

CORPUS = [GOOD, starter(), *(p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parent / "bad").glob("*")))]
TOKENS = [
    "null", "~", "true", "''", "[]", "{}", "-1", "0", "1e9", "1e-400", ".nan", "032", "20 Mbit/s", "0 s", "720 h",
    "5 %", "*a", "&a x", "!!int 3", "<<: x", "fsa", "kind: fsa", "? x", "- ", ": ", "\t", "\x00", "ü", "{a: 1}",
    "[1, [2]]", "---", "east", "a" * 40, "measured", "simulate", "modelled", "star", "mesh", "1000", "10000000",
    "1.5 bdp", "generator",
]  # fmt: skip
LEAVES = st.sampled_from(TOKENS) | st.integers().map(str) | st.text(max_size=12).map(repr)
WORDS = st.sampled_from(sorted(set(re.findall(r"[a-z_0-9]+(?=:)", GOOD + starter()))))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(WORDS, inner, max_size=4).map(
            lambda entries: "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"
        ),
    ),
    max_leaves=15,
)


def read(text: str | bytes, overrides: tuple[str, ...] = ()) -> None:
    """Read and, if it is good, plan it on every back end."""
    try:
        scenario = loads(text, "s.yaml", overrides)
    except ScenarioError as error:
        assert error.problems and all(problem.startswith(("s.yaml", "--set", "…")) for problem in error.problems)
        return
    for on in BACK_ENDS:
        try:
            plan = build_plan(scenario, on)
        except ScenarioError:
            continue
        assert from_json(to_json(plan)) == plan


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text(text: str | bytes) -> None:
    read(text)


@given(TREES)
def test_any_tree(text: str) -> None:
    read(text)


@given(st.dictionaries(WORDS, TREES, max_size=3))
def test_any_tree_beside_good_keys(entries: dict[str, str]) -> None:
    read(GOOD + "".join(f"{key}: {value}\n" for key, value in entries.items() if f"\n{key}:" not in f"\n{GOOD}"))


@given(st.sampled_from(CORPUS), st.integers(0, 10**6), st.integers(0, 30), LEAVES)
def test_mutated_files(text: str, position: int, length: int, token: str) -> None:
    position %= len(text) + 1
    read(text[:position] + token + text[position + length :])


@given(st.sampled_from([GOOD, starter()]), st.integers(0, 10**6), LEAVES)
def test_a_value_replaced(text: str, choice: int, token: str) -> None:
    places = [place for place in range(len(text)) if text.startswith(": ", place)]
    place = places[choice % len(places)] + 2
    ends = [end for end in (text.find(mark, place) for mark in ",}]\n") if end >= 0]
    read(text[:place] + token + text[min(ends) :])


@given(st.sampled_from(["seed", "links[*].rate", "links", "device", "topology", "sync", "data_centers[west]"]), TREES)
def test_any_override(path: str, value: str) -> None:
    read(GOOD, (f"{path}={value}",))


SCRIPTS = Path(__file__).parents[2] / "scenarios" / "scripts"
SCRIPT = ("workload={script: plain_pytorch.py}", "training={rounds: 100}")


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: ".".join(refused.at))
def test_every_refused_combination_has_a_scenario_that_meets_it(refused) -> None:  # type: ignore[no-untyped-def]
    examples = [
        ("training.compute=modelled",),
        ("training.compute=modelled", "run.on=simulate", "training.target_accuracy=0.9"),
        ("training.model=declared", "training.data=none"),
        ("optimizer={kind: adam, at: worker}", "codec={tier1: none, tier2: bisparse}"),
        ("optimizer={kind: adam, at: worker}", "order={kind: p3, overlap: layers}"),
        ("paradigm=allreduce", "sync=bsp"),
        ("paradigm=allreduce", "codec=bisparse"),
        ("paradigm=gossip", "codec=fp16"),
        ("paradigm=gossip", "shard=multigps"),
        ("paradigm=gossip", "order=p3"),
        ("paradigm=gloo", "run.on=simulate"),
        ("paradigm=gloo", "codec=fp16"),
        ("paradigm=mpi", "run.on=simulate"),
        ("paradigm=mpi", "codec=fp16"),
        ("training.loading=cached", "training.compute=modelled", "run.on=simulate"),
        ("training.loading=cached", "order={kind: p3, overlap: layers}"),
        ("training.loading={kind: cached, source: nowhere}",),
        ("paradigm=gossip", "overlay=tsengine"),
        ("overlay={tier1: tree, tier2: tree}", "sync=tap"),
        ("overlay={tier1: tree, tier2: tree}", "codec=twobit"),
        ("overlay={tier1: tree, tier2: tree}", "order=dgt"),
        ("order=dgt", "codec={tier1: none, tier2: twobit}"),
        ("order=dgt", "sync=hfa", "optimizer={kind: adam, at: worker}"),
        ("sync=hfa", "codec={tier1: topk, tier2: topk}", "optimizer={kind: adam, at: worker}"),
        ("order={kind: dgt, k: 0.3, k_min: 0.5}",),
        ("order={kind: dgt, block: 4098 bytes}",),
        ("codec=twobit", "checkpoint={every: 5}"),
        ("recovery={on_failure: continue}", "paradigm=allreduce"),
        ("recovery={on_nan: skip}", "paradigm=allreduce"),
        ("faults=[{kind: disk_full, node: '*', round: 3}]",),
        ("faults=[{kind: nan, node: '*', round: 3}]", "training.compute=modelled", "run.on=simulate"),
        ("faults=[{kind: down, link: '*', at: 5 s, for: 1 s}]", "run.on=local"),
        ("faults=[{kind: reorder, link: '*', at: 5 s, for: 1 s, share: 1 %}]", "run.on=simulate"),
        ("recovery={replicas: 1}",),
        ("faults=[{kind: join, node: west/worker0, at: 5 s}]",),
        (*SCRIPT, "paradigm=gossip"),
        (*SCRIPT, "order={kind: p3, overlap: layers}"),
        (*SCRIPT, "sync={tier1: tap, tier2: {kind: ssp, staleness: 0}}"),
    ]
    messages = []
    for overrides in examples:
        with pytest.raises(ScenarioError) as caught:
            loads(GOOD, overrides=overrides, folder=SCRIPTS)
        messages.append(str(caught.value))
    assert any(refused.reason in message and ".".join(refused.at) in message for message in messages)
