"""Rules over a whole scenario: every refusal is met by some example, and no rule names a technique."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.scenario import loads, overrides
from testbed.scenario.kinds import AXES
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.rules import RULES, violations_of
from testbed.scenario.schema import Scenario
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scenarios" / "scripts"
SCRIPT = ("workload={script: plain_pytorch.py}", "training={rounds: 100}")
PROGRAM = ("training=null", "workload={command: 'true'}")
TABLES = ("training.model=recommender", "training.data=clicks", "paradigm={kind: hips, pull: rows}")
RELAYS = "overlay={tier1: star, tier2: {kind: tree, merge: exact}}"
TREES = "overlay={kind: tree, merge: exact}"
RING, GLOO = "paradigm={kind: hips, inside: ring}", "paradigm={kind: hips, inside: gloo}"
EXAMPLES = [
    (RING, "sync=tap"),
    (RING, "optimizer={kind: adam, at: worker}", "sync=esync"),
    (RING, "optimizer={kind: adam, at: worker}", "sync={kind: diloco, fragments: 2}"),
    (RING, "codec={tier1: fp16, tier2: fp16}"),
    (RING, "overlay={tier1: tree, tier2: star}"),
    (RING, "order={kind: fifo, overlap: layers}"),
    (*TABLES, "paradigm={kind: hips, inside: ring, pull: rows}"),
    (*SCRIPT, RING),
    (RING, "recovery={on_failure: continue}"),
    (GLOO, "run.on=simulate"),
    (GLOO, "transport.tls=true"),
    ("paradigm={kind: allreduce, algorithm: hitopk, inside: gloo}", "run.on=simulate"),
    ("paradigm={kind: allreduce, inside: gloo}",),
    ("paradigm={kind: gossip, step: 0.5}",),
    ("paradigm={kind: gossip, gradients: mean}", "sync=diloco"),
    ("paradigm={kind: hips, pull: rows}",),
    (*TABLES, "training.compute=modelled", "run.on=simulate"),
    (*TABLES, "training.loading=cached"),
    ("cluster={data_centers: {atlantis: {}}}",),
    ("cluster={data_centers: {tokyo: {advertise: 203.0.113.7}}}",),
    (*PROGRAM, "run.on=cluster"),
    (*TABLES, "device.kind=cuda"),
    ("device.kind=cuda", "run.on=exact"),
    ("order={kind: p3, overlap: layers}", "training.accumulate=2"),
    ("paradigm={kind: allreduce, overlap: buckets}", "training.accumulate=2"),
    (*TABLES, "codec={tier1: none, tier2: twobit}"),
    (*TABLES, "overlay={tier1: star, tier2: tree}"),
    (*TABLES, "order=dgt"),
    (*TABLES, "optimizer={kind: adam, at: worker}"),
    (*TABLES, "sync={tier1: tap, tier2: mixedsync}"),
    (*TABLES, "recovery={on_failure: continue}"),
    ("training.compute=modelled",),
    ("training.compute=modelled", "run.on=simulate", "training.target_accuracy=0.9"),
    ("training.model=declared", "training.data=none"),
    ("optimizer={kind: adam, at: worker}", "codec={tier1: none, tier2: bisparse}"),
    ("sync=mixedsync", "optimizer=dcasgd", "codec={tier1: none, tier2: bisparse}"),
    ("optimizer={kind: adam, at: worker}", "order={kind: p3, overlap: layers}"),
    ("paradigm=allreduce", "sync=tap"),
    ("paradigm={kind: allreduce, overlap: buckets}", "sync=diloco"),
    ("paradigm=gloo", "run.on=local", "sync=hfa"),
    ("paradigm=gossip", "sync={kind: diloco, fragments: 2}"),
    ("optimizer={kind: adam, at: worker}", "overlay=tree", "sync={kind: diloco, fragments: 2}"),
    ("paradigm={kind: allreduce, optimizer_work: update}", "sync={kind: diloco, fragments: 2}"),
    ("sync=hfa", "optimizer=dcasgd"),
    ("paradigm={kind: gossip, algorithm: adpsgd}", "sync=esync"),
    ("paradigm=allreduce", "order={kind: fifo, overlap: layers}"),
    ("paradigm={kind: allreduce, algorithm: hitopk}", "codec=fp16"),
    ("paradigm=gossip", "codec=bisparse"),
    ("paradigm={kind: gossip, algorithm: adpsgd}", "codec=fp16"),
    ("paradigm=gossip", "shard=multigps"),
    ("paradigm=gossip", "order=p3"),
    ("paradigm=gloo", "run.on=simulate"),
    (*PROGRAM, "run.on=simulate"),
    (*PROGRAM, "topology.data_centers[0].global_servers=2"),
    (*PROGRAM, "faults=[{kind: slow, node: '*', at: 1 s, for: 1 s, factor: 2}]"),
    (*PROGRAM, "faults=[{kind: kill, node: '*', round: 3}]"),
    ("training.model=user_program", "training.data=user_program"),
    ("paradigm=gloo", "codec=fp16"),
    ("paradigm=allreduce", "codec={tier1: fp16, tier2: none}"),
    ("paradigm={kind: allreduce, algorithm: hitopk}", "data_centers[west].workers=3"),
    ("paradigm={kind: allreduce, optimizer_work: norms}",),
    ("optimizer=lars", "data_centers[west].workers=3", "paradigm={kind: allreduce, optimizer_work: update}"),
    (*SCRIPT, "training={rounds: 100, precision: bf16}"),
    ("training.compute=modelled", "run.on=simulate", "training.accumulate=2"),
    ("paradigm=gloo", "run.on=simulate"),
    ("training.loading=cached", "training.compute=modelled", "run.on=simulate"),
    ("training.loading=cached", "order={kind: p3, overlap: layers}"),
    ("training.loading={kind: cached, source: nowhere}",),
    ("paradigm=gossip", "overlay=tsengine"),
    ("overlay={tier1: tree, tier2: tree}", "sync=tap"),
    ("overlay={tier1: tsengine, tier2: tsengine}", "sync=tap"),
    ("overlay={tier1: tree, tier2: tree}", "codec=twobit"),
    ("overlay={tier1: tree, tier2: tree}", "order=dgt"),
    ("order=dgt", "codec={tier1: none, tier2: twobit}"),
    ("order=dgt", "sync=hfa", "optimizer={kind: adam, at: worker}"),
    ("order={kind: dgt, k: 0.3, k_min: 0.5}",),
    ("order={kind: dgt, block: 4098 bytes}",),
    ("recovery={on_failure: continue}", "sync=mixedsync", RELAYS),
    ("recovery={on_failure: continue}", TREES, "codec={tier1: none, tier2: topk}"),
    ("recovery={on_failure: continue}", "paradigm={kind: allreduce, algorithm: hitopk}"),
    ("recovery={on_nan: skip}", "paradigm=allreduce"),
    ("optimizer={kind: sgd, clip_norm: 1}", "topology.data_centers[0].global_servers=2"),
    ("optimizer={kind: sgd, clip_norm: 1}", "sync=tap"),
    ("optimizer={kind: sgd, at: worker}", "paradigm=gossip"),
    ("order={kind: fifo, slice: 4 KiB}", "paradigm=allreduce"),
    ("device.server_device=cuda", "paradigm=allreduce"),
    ("recovery={max_restarts: 7}",),
    ("training.split={kind: dirichlet, alpha: 0.5}", "training.compute=modelled", "run.on=simulate"),
    ("optimizer={kind: sgd, clip_norm: 1}", "recovery={on_failure: continue}"),
    ("recovery={on_nan: ignore}", "training.compute=modelled", "run.on=simulate"),
    ("faults=[{kind: disk_full, node: '*', round: 3}]",),
    ("faults=[{kind: nan, node: '*', round: 3}]", "training.compute=modelled", "run.on=simulate"),
    ("faults=[{kind: down, link: '*', at: 5 s, for: 1 s}]", "run.on=local"),
    ("faults=[{kind: reorder, link: '*', at: 5 s, for: 1 s, share: 1 %}]", "run.on=simulate"),
    ("device.pace=measured", "run.on=exact"),
    ("recovery={replicas: 1}",),
    ("faults=[{kind: join, node: west/worker0, at: 5 s}]",),
    (*SCRIPT, "paradigm=gossip"),
    (*SCRIPT, "order={kind: p3, overlap: layers}"),
    (*SCRIPT, "sync={tier1: tap, tier2: {kind: ssp, staleness: 0}}"),
    (*SCRIPT, "paradigm=allreduce"),
    (*SCRIPT, "sync=esync"),
    (*SCRIPT, "sync={kind: hfa, weights: sample}"),
    (*SCRIPT, "sync={kind: diloco, fragments: 2}"),
    (*SCRIPT, "sync={kind: diloco, overlap_steps: 1}"),
    (*SCRIPT, "order=dgt"),
    (*SCRIPT, "faults=[{kind: nan, node: west/worker0, round: 3}]"),
    (*SCRIPT, "recovery={on_failure: continue}", "faults=[{kind: leave, node: west/worker0, at: 5 s}]"),
    ("recovery={on_failure: continue}", "codec=topk", "faults=[{kind: leave, node: west/worker0, round: 5}]"),
    ("paradigm=ps", "sync={tier1: fsa, tier2: ssp}"),
    ("paradigm=ps", "sync=hfa", "optimizer={kind: adam, at: worker}"),
    ("sync={tier1: tap, tier2: fsa}",),
    ("sync=hfa",),
    ("optimizer={kind: sgd, nesterov: true}",),
    ("paradigm={kind: allreduce, density: 5 %}",),
    ("data_centers[west].workers=300",),
    ("order=dgt", "transport.tls=true"),
    ("background=[{kind: tcp, from: east, to: nowhere}]",),
    ("training.data={kind: teacher, side: 3}", "training.model=cnn"),
    ("training.data={kind: tokens, context: 8}", "training.model=transformer", "training.split=by_class"),
]


HUGE = "topology={generator: {kind: star, data_centers: 101, workers: 1000, rate: 1 Gbit/s, delay: 1 ms}}"
NORMALISES = f"{Path(__file__).parents[1] / 'testing/examples/optimizer_normalises.py'}:NormalisesWholes"
LEAVES = "faults=[{kind: leave, node: west/worker0, round: 5}]"
FURTHER = [  # refusals whose rules have others with examples above, and with cures in ``test_cures``
    ("run.on=simulate", HUGE),
    ("paradigm=gloo", "run.on=local", "transport.tls=true"),
    ("recovery={on_failure: continue}", "training.loading={kind: cached, spread: true}"),
    ("recovery={on_failure: continue}", "order=dgt", LEAVES),
    ("recovery={on_failure: continue}", "paradigm=allreduce", LEAVES),
    ("optimizer={kind: adam, at: worker}", "sync={kind: diloco, fragments: 2}", "recovery={on_failure: continue}"),
    ("sync={tier1: fsa, tier2: hfa}",),
    ("sync={tier1: mixedsync, tier2: mixedsync}",),
    ("optimizer={kind: adam, at: worker}", "sync={tier1: {kind: hfa, k1: 2}, tier2: {kind: hfa, k1: 3}}"),
    ("optimizer={kind: adam, at: worker}", "sync={tier1: diloco, tier2: tap}"),
    ("optimizer={kind: adam, at: worker}", "sync=mixedsync"),
    (f"optimizer={NORMALISES}", "paradigm={kind: allreduce, optimizer_work: update}"),
]


def unchecked(*texts: str) -> Scenario:
    """Return GOOD with these overrides, without a look at the rules."""
    root = parse(GOOD, "s.yaml")
    assert not overrides.apply(root, texts, overrides.Known({"topology": ("data_centers",)}))
    return Scenario.model_validate(plain(root), context={"folder": SCRIPTS, "allow_code": True})


SCENARIOS = [(texts, unchecked(*texts)) for texts in (*EXAMPLES, *FURTHER)]


def test_every_refusal_is_met_by_an_example() -> None:
    files = {rule.__code__.co_filename for rule in RULES}
    refusals = {
        (file, node.lineno) for file in files for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Yield)
    }  # fmt: skip
    met: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, argument: object) -> Any:
        met.add((frame.f_code.co_filename, frame.f_lineno))
        return note if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(note)
    try:
        for _, scenario in SCENARIOS:
            violations_of(scenario)
    finally:
        sys.settrace(before)
    assert sorted(refusals - met) == []


@for_each(("texts", "scenario"), SCENARIOS)
def test_reading_refuses_every_example_with_place_and_cure(texts: tuple[str, ...], scenario: Scenario) -> None:
    found = violations_of(scenario)
    with pytest.raises(ScenarioError) as caught:
        loads(GOOD, "s.yaml", overrides=texts, folder=SCRIPTS)
    assert found and all(violation.problem in str(caught.value) for violation in found)
    assert all(violation.hint for violation in found)


def test_a_dense_codec_is_not_summed_on_the_way_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = unchecked("overlay={tier1: tree, tier2: tree}", "codec=fp16")
    assert violations_of(scenario) == []
    monkeypatch.setattr(CODECS["fp16"], "has_memory", True)
    found = violations_of(scenario)
    assert [violation.at for violation in found] == [("overlay", "tier1"), ("overlay", "tier2")]
    assert all("its residual" in violation.problem and "payloads" not in violation.problem for violation in found)
    assert {violation.hint for violation in found} == {"write 'merge: exact', or codec: none"}


def test_a_good_scenario_breaks_no_rule() -> None:
    assert violations_of(unchecked()) == []


def test_no_rule_compares_a_kind_with_the_name_of_a_technique() -> None:
    """Rules look at declarations, so that they hold for techniques from outside, too."""
    names = {kind for axis in AXES.values() for kind in axis} - {"none"}
    compared = [
        f"{path.name}:{node.lineno}: {constant.value}"
        for path in sorted((ROOT / "testbed" / "scenario" / "rules").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and "kind" in ast.dump(node)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and constant.value in names
    ]
    assert compared == []
