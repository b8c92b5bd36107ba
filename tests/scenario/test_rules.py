"""Rules over a whole scenario: every refusal is met by some example, and no rule names a technique."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import loads, overrides
from testbed.scenario.reading.axes import AXES
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.rules import RULES, violations_of
from testbed.scenario.schema import Scenario
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scenarios" / "scripts"
SCRIPT = ("workload={script: plain_pytorch.py}", "training={rounds: 100}")
PROGRAM = ("training=null", "workload={command: 'true'}")
TRACE = ("training=null", f"workload={{trace: {ROOT / 'scenarios' / 'jobs' / 'two-stages'}}}", "paradigm=allreduce")
OF_TRACES = (*TRACE, f"workload.groups={ROOT / 'scenarios' / 'jobs' / 'two-stages' / 'job.groups.json'}", "device=null")
TABLES = ("training.model=recommender", "training.data=clicks", "paradigm={kind: hips, pull: rows}")
RELAYS = "overlay={tier1: star, tier2: {kind: tree, merge: exact}}"
TREES = "overlay={kind: tree, merge: exact}"
RING, GLOO = "paradigm={kind: hips, inside: ring}", "paradigm={kind: hips, inside: gloo}"
HIPS = "paradigm=hips"
LOCAL = "optimizer={kind: adam, at: worker}"
ATTACK = "faults=[{kind: attack, attack: copy, node: west/worker0, round: 5}]"
AT_SERVERS = "paradigm={kind: hips, inside: servers}"
PIPELINE = "paradigm={kind: pipeline, stages: 2}"
MODELLED = ("training.compute=modelled", "training.data=none", "training.model={kind: declared, name: resnet18}")
SERVED = "paradigm={kind: pipeline, stages: 2, replicas: hips}"
EXAMPLES: dict[tuple[str, ...], list[str | tuple[str, ...]]] = {
    # settings that a rule refuses, and what the refusals propose: ``test_cures``
    (RING, "sync=tap"): ["sync=fsa", AT_SERVERS],
    (RING, "optimizer={kind: adam, at: worker}", "sync={kind: diloco, fragments: 2}"): ["+sync=diloco", AT_SERVERS],
    (RING, "codec={tier1: fp16, tier2: fp16}"): ["codec={tier1: none, tier2: fp16}", AT_SERVERS],
    (RING, "overlay={tier1: tree, tier2: star}"): ["overlay={tier1: star, tier2: star}", AT_SERVERS],
    (RING, "order={kind: fifo, overlap: layers}"): ["order={kind: fifo, overlap: none}", AT_SERVERS],
    (*TABLES, "paradigm={kind: hips, inside: ring, pull: rows}"): [
        "paradigm={kind: hips, inside: ring, pull: all}",
        "paradigm={kind: hips, inside: servers, pull: rows}",
    ],
    (*SCRIPT, RING): [AT_SERVERS],
    ("outer_optimizer=nesterov",): ["+sync=diloco"],
    ("sync=diloco", "outer_optimizer=lars"): ["outer_optimizer=sgd"],
    ("sync=diloco", "outer_optimizer={kind: nesterov, clip_norm: 1}"): [
        "outer_optimizer={kind: nesterov, clip_norm: 0}"
    ],
    ("paradigm=gossip", "codec=demo"): ["codec=fp16"],
    (RING, "recovery={on_failure: continue}"): ["recovery={on_failure: restart}", AT_SERVERS],
    (GLOO, "run.on=simulate"): ["run.on=local", "run.on=emulate", RING],
    (GLOO, "transport.tls=true"): [RING, "transport.tls=false"],
    ("paradigm={kind: allreduce, inside: gloo}",): ["+paradigm=allreduce"],
    ("paradigm={kind: gossip, step: 0.5}",): ["paradigm={kind: gossip, step: 0}"],
    ("paradigm={kind: gossip, gradients: mean}", "sync=diloco"): ["paradigm={kind: gossip, gradients: sum}"],
    ("paradigm={kind: hips, pull: rows}",): ["paradigm={kind: hips, pull: all}"],
    ("aggregation=median", "sync=tap"): ["sync=fsa", "aggregation=mean"],
    ("aggregation=median", "overlay={tier1: star, tier2: {kind: tree, merge: sum}}"): [RELAYS, "aggregation=mean"],
    (RING, "aggregation={tier1: median, tier2: mean}"): [AT_SERVERS, "aggregation=mean"],
    (*TABLES, "aggregation=median"): ["paradigm={kind: hips, pull: all}", "aggregation=mean"],
    ("aggregation=median", "codec=topk"): ["codec=twobit", "aggregation=krum"],
    ("aggregation=norm_clip", "optimizer={kind: adam, at: worker}", "sync=hfa"): ["aggregation=median"],
    ("aggregation=krum", "recovery={on_failure: continue}"): ["aggregation=trimmed_mean"],
    ("order={kind: fifo, overlap: layers}", ATTACK): ["order={kind: fifo, overlap: none}"],
    (*TABLES, "training.compute=modelled", "run.on=simulate"): [],
    (*TABLES, "training.loading=cached"): ["training.loading=in_memory"],
    ("cluster={data_centers: {atlantis: {}}}",): [],
    ("cluster={data_centers: {tokyo: {advertise: 203.0.113.7}}}",): [],
    (*PROGRAM, "run.on=cluster"): [],
    (*TABLES, "device.kind=cuda"): [],
    ("device.kind=cuda", "run.on=exact"): [],
    ("order={kind: p3, overlap: layers}", "training.accumulate=2"): [
        "order={kind: p3, overlap: none}",
        "training.accumulate=1",
    ],
    ("paradigm={kind: allreduce, overlap: buckets}", "training.accumulate=2"): [
        "paradigm={kind: allreduce, overlap: after}",
        "training.accumulate=1",
    ],
    (*TABLES, "codec={tier1: none, tier2: twobit}"): ["codec=none", "codec=fp16"],
    (*TABLES, "overlay={tier1: star, tier2: tree}"): ["overlay=star"],
    (*TABLES, "order=dgt"): ["order=fifo", "order=p3"],
    (*TABLES, "optimizer={kind: adam, at: worker}"): ["optimizer={kind: adam, at: global}"],
    (*TABLES, "sync={tier1: tap, tier2: mixedsync}"): [
        "sync={tier1: fsa, tier2: mixedsync}",
        ("paradigm={kind: ps, pull: rows}", "+sync=tap"),
    ],
    (*TABLES, "recovery={on_failure: continue}"): ["recovery={on_failure: restart}", "recovery={on_failure: abort}"],
    ("training.compute=modelled",): [],
    ("training.compute=modelled", "run.on=simulate", "training.target_accuracy=0.9"): [],
    ("training.model=declared", "training.data=none"): [],
    ("optimizer={kind: adam, at: worker}", "codec={tier1: none, tier2: bisparse}"): [
        "codec={tier1: none, tier2: {kind: bisparse, pull: sparse-sum}}"
    ],
    ("sync=mixedsync", "optimizer=dcasgd", "codec={tier1: none, tier2: bisparse}"): [
        "codec={tier1: none, tier2: {kind: bisparse, pull: dense}}"
    ],
    ("optimizer={kind: adam, at: worker}", "order={kind: p3, overlap: layers}"): ["order={kind: p3, overlap: none}"],
    ("paradigm=allreduce", "sync=tap"): ["sync=fsa", HIPS],
    ("paradigm={kind: allreduce, overlap: buckets}", "sync=diloco"): ["paradigm={kind: allreduce, overlap: after}"],
    ("paradigm=gloo", "run.on=local", "sync=hfa"): ["sync={kind: hfa, k2: 1}"],
    ("paradigm=gossip", "sync={kind: diloco, fragments: 2}"): ["+sync=diloco", "paradigm=allreduce"],
    ("optimizer={kind: adam, at: worker}", "overlay=tree", "sync={kind: diloco, fragments: 2}"): [
        "overlay=star",
        "+sync=diloco",
    ],
    ("paradigm={kind: allreduce, optimizer_work: update}", "sync={kind: diloco, fragments: 2}"): [
        "paradigm={kind: allreduce, optimizer_work: replicated}"
    ],
    ("sync=hfa", "optimizer=dcasgd"): ["optimizer={kind: sgd, at: worker}", "optimizer={kind: adam, at: worker}"],
    ("paradigm={kind: gossip, algorithm: adpsgd}", "sync=esync"): [
        "paradigm={kind: gossip, algorithm: dpsgd}",
        *(f"sync={sync}" for sync in ("fsa", "hfa", "diloco", "bsp")),
    ],
    ("paradigm=allreduce", "order={kind: fifo, overlap: layers}"): [
        "order={kind: fifo, overlap: none}",
        ("order={kind: fifo, overlap: none}", "paradigm={kind: allreduce, overlap: buckets}"),
    ],
    ("paradigm={kind: allreduce, algorithm: hitopk}", "codec=fp16"): ["codec=none"],
    ("paradigm=gossip", "codec=bisparse"): ["codec={kind: bisparse, momentum: 0}"],
    ("paradigm={kind: gossip, algorithm: adpsgd}", "codec=fp16"): ["codec=none"],
    ("paradigm={kind: gossip, algorithm: noloco}",): ["sync=hfa", "sync=diloco"],
    ("paradigm=gossip", "shard=multigps"): ["-shard", HIPS],
    ("paradigm=gossip", "order=p3"): ["-order", HIPS],
    ("paradigm=gloo", "run.on=simulate"): [
        "paradigm={kind: allreduce, algorithm: ring}",
        "run.on=local",
        "run.on=emulate",
    ],
    (*PROGRAM, "run.on=simulate"): [],
    (*PROGRAM, "topology.data_centers[0].global_servers=2"): [],
    (*PROGRAM, "faults=[{kind: slow, node: '*', at: 1 s, for: 1 s, factor: 2}]"): [],
    (*PROGRAM, "faults=[{kind: kill, node: '*', round: 3}]"): [],
    ("training.model=user_program", "training.data=user_program"): [],
    ("training.model=traced", "training.data=traced"): [],
    (*OF_TRACES, "run.on=cluster"): [],
    (*OF_TRACES, "paradigm=hips"): [],
    (*OF_TRACES, "data_centers[west].device={step_time: 1 s}"): [],
    (*OF_TRACES, "faults=[{kind: nan, node: west/worker0, round: 3}]"): [],
    ("paradigm=gloo", "codec=fp16"): ["codec=none"],
    ("paradigm=allreduce", "codec={tier1: fp16, tier2: none}"): ["codec=none"],
    ("paradigm={kind: allreduce, algorithm: hitopk}", "data_centers[west].workers=3"): [
        "paradigm={kind: allreduce, algorithm: flat_topk}"
    ],
    ("paradigm={kind: allreduce, optimizer_work: norms}",): [
        "paradigm={kind: allreduce, optimizer_work: update}",
        "optimizer=lars",
    ],
    ("optimizer=lars", "data_centers[west].workers=3", "paradigm={kind: allreduce, optimizer_work: update}"): [
        "paradigm={kind: allreduce, optimizer_work: update, shared_by: all}"
    ],
    (*SCRIPT, "training={rounds: 100, precision: bf16}"): [],
    ("training.compute=modelled", "run.on=simulate", "training.deterministic=true"): [],
    ("training.loading=cached", "training.compute=modelled", "run.on=simulate"): [],
    ("training.loading=cached", "order={kind: p3, overlap: layers}"): ["order={kind: p3, overlap: none}"],
    ("training.loading={kind: cached, source: nowhere}",): [],
    ("paradigm=gossip", "overlay=tsengine"): ["-overlay", HIPS],
    ("overlay={tier1: tree, tier2: tree}", "sync=tap"): ["overlay={kind: tree, merge: exact}"],
    ("overlay={tier1: tsengine, tier2: tsengine}", "sync=tap"): [
        "overlay={kind: tree, merge: exact}",
        "overlay={kind: netstorm, merge: exact}",
        "overlay=star",
        "sync=fsa",
    ],
    ("overlay={tier1: tree, tier2: tree}", "codec=twobit"): [
        "overlay={tier1: {kind: tree, merge: exact}, tier2: {kind: tree, merge: exact}}",
        "codec=none",
        "codec=fp16",
    ],
    ("overlay={tier1: tree, tier2: tree}", "order=dgt"): ["overlay={tier1: tree, tier2: star}"],
    ("order=dgt", "codec={tier1: none, tier2: twobit}"): [
        "codec={tier1: none, tier2: none}",
        "codec={tier1: none, tier2: fp16}",
    ],
    ("order=dgt", "sync=hfa", "optimizer={kind: adam, at: worker}"): [
        "order={kind: dgt, late: retransmit, code: exact}"
    ],
    ("order={kind: dgt, k: 0.3, k_min: 0.5}",): [],
    ("order={kind: dgt, block: 4098 bytes}",): [],
    ("recovery={on_failure: continue}", "sync=mixedsync", RELAYS): ["recovery={on_failure: restart}", "overlay=star"],
    ("recovery={on_failure: continue}", TREES, "codec={tier1: none, tier2: topk}"): [
        "codec={tier1: none, tier2: {kind: topk, pull: dense}}",
        "overlay=star",
        "recovery={on_failure: restart}",
    ],
    ("recovery={on_nan: skip}", "paradigm=allreduce"): ["recovery={on_nan: abort}"],
    ("optimizer={kind: sgd, clip_norm: 1}", "topology.data_centers[0].global_servers=2"): [
        "topology.data_centers[0].global_servers=1",
        "optimizer.at=worker",
    ],
    ("optimizer={kind: sgd, clip_norm: 1}", "sync=tap"): ["paradigm=ps", "sync=mixedsync"],
    ("optimizer={kind: sgd, at: worker}", "paradigm=gossip"): [
        "optimizer.at=global",
        ("optimizer.at=global", "paradigm={kind: gossip, gradients: mean}"),
    ],
    ("order={kind: fifo, slice: 4 KiB}", "paradigm=allreduce"): ["-order", "paradigm=hips"],
    ("device.server_device=cuda", "paradigm=allreduce"): ["-device.server_device"],
    ("recovery={max_restarts: 7}",): ["recovery={max_restarts: 7, on_failure: restart}"],
    ("training.split={kind: dirichlet, alpha: 0.5}", "training.compute=modelled", "run.on=simulate"): [
        "-training.split"
    ],
    ("optimizer={kind: sgd, clip_norm: 1}", "recovery={on_failure: continue}"): [
        "recovery={on_failure: restart}",
        "optimizer.at=worker",
    ],
    ("optimizer={kind: adam, at: worker}", "codec=powersgd", "recovery={on_failure: continue}"): [
        "optimizer.at=global"
    ],
    ("optimizer={kind: adam, at: worker}", "codec=powersgd", "overlay=tree"): [
        ("optimizer.at=global", "+overlay={kind: tree, merge: exact}")
    ],
    ("optimizer={kind: adam, at: worker}", "codec=powersgd", "aggregation=median"): ["optimizer.at=global"],
    ("sync={tier1: fsa, tier2: deco}",): ["sync=deco"],
    ("sync=deco", "recovery={on_failure: continue}"): ["recovery={on_failure: restart}", "sync=fsa"],
    ("sync=deco", "paradigm=allreduce"): ["sync=fsa"],
    ("sync=deco", "overlay=tree"): ["sync=fsa"],
    ("sync=deco", "order=p3"): ["sync=fsa"],
    (LOCAL, "sync=quorum", "checkpoint={every: 2}"): ["checkpoint={every: 0}", "+sync=diloco"],
    (LOCAL, "sync=quorum", "topology.data_centers[0].global_servers=2"): [
        "topology.data_centers[0].global_servers=1",
        "+sync=diloco",
    ],
    (LOCAL, "sync={tier1: {kind: diloco, h: 5}, tier2: {kind: quorum, h: 6}}"): [
        "sync={tier1: {kind: diloco, h: 5}, tier2: {kind: quorum, h: 5}}"
    ],
    (LOCAL, "sync={tier1: async_local_sgd, tier2: halos}"): ["sync=halos"],
    (LOCAL, "sync={tier1: halos, tier2: fsa}"): ["sync=halos"],
    (LOCAL, "sync=halos", "recovery={on_failure: continue}"): ["recovery={on_failure: restart}"],
    (LOCAL, "paradigm=allreduce", "sync={kind: diloco, first_moments: 2}"): ["sync={kind: diloco, first_moments: 0}"],
    (LOCAL, "sync={kind: diloco, fragments: 2, first_moments: 2}"): [
        "sync={kind: diloco, fragments: 2, first_moments: 0}"
    ],
    (LOCAL, "codec=fp16", "sync={kind: hfa, second_moments: 2}"): ["sync={kind: hfa, second_moments: 0}"],
    (LOCAL, RING, "sync={kind: diloco, weights: token}"): ["sync={kind: diloco, weights: worker}"],
    (LOCAL, "aggregation=median", "sync={kind: diloco, weights: token}"): ["sync={kind: diloco, weights: worker}"],
    (*SCRIPT, "sync={kind: diloco, weights: token}"): ["sync={kind: diloco, weights: worker}"],
    ("recovery={on_nan: ignore}", "training.compute=modelled", "run.on=simulate"): ["recovery={on_nan: abort}"],
    ("faults=[{kind: disk_full, node: '*', round: 3}]",): ["checkpoint={every: 10}"],
    ("faults=[{kind: nan, node: '*', round: 3}]", "training.compute=modelled", "run.on=simulate"): [],
    ("faults=[{kind: down, link: '*', at: 5 s, for: 1 s}]", "run.on=local"): ["run.on=emulate", "run.on=simulate"],
    ("faults=[{kind: reorder, link: '*', at: 5 s, for: 1 s, share: 1 %}]", "run.on=simulate"): [],
    ("device.pace=measured", "run.on=exact"): [],
    ("recovery={replicas: 1}",): [
        "recovery={replicas: 0}",
        *((f"sync={sync}", "recovery={replicas: 1, on_failure: continue}") for sync in ("fsa", "bsp")),
        *(
            ("sync=" + sync, "+optimizer={kind: adam, at: worker}", "recovery={replicas: 1, on_failure: continue}")
            for sync in ("hfa", "diloco")
        ),
    ],
    ("faults=[{kind: join, node: west/worker0, at: 5 s}]",): ["recovery={on_failure: continue}"],
    (*SCRIPT, "paradigm=gossip"): [],
    (*SCRIPT, "order={kind: p3, overlap: layers}"): ["order={kind: p3, overlap: none}"],
    (*SCRIPT, "sync={tier1: tap, tier2: {kind: ssp, staleness: 0}}"): [],
    (*SCRIPT, "paradigm=allreduce"): [],
    (*SCRIPT, "sync=esync"): [
        "sync={kind: esync, fixed_steps: 4}",
        *(f"sync={sync}" for sync in ("fsa", "hfa", "diloco", "bsp")),
    ],
    (*SCRIPT, "sync={kind: hfa, weights: sample}"): [
        "sync={kind: hfa, weights: worker}",
        "sync={kind: hfa, weights: party}",
    ],
    (*SCRIPT, "sync={kind: diloco, fragments: 2}"): ["+sync=diloco"],
    (*SCRIPT, "order=dgt"): ["order={kind: dgt, adaptive: false}", "order=fifo"],
    (*SCRIPT, "faults=[{kind: nan, node: west/worker0, round: 3}]"): [],
    (*SCRIPT, "recovery={on_failure: continue}", "faults=[{kind: leave, node: west/worker0, at: 5 s}]"): [],
    ("recovery={on_failure: continue}", "codec=topk", "faults=[{kind: leave, node: west/worker0, round: 5}]"): [
        "codec=none",
        "codec=fp16",
    ],
    ("paradigm=ps", "sync=hfa", "optimizer={kind: adam, at: worker}"): ["sync={kind: hfa, k2: 1}"],
    ("sync={tier1: tap, tier2: fsa}",): [f"sync={{tier1: tap, tier2: {sync}}}" for sync in ("mixedsync", "tap", "ssp")],
    ("sync=hfa", "optimizer={kind: adam, at: global}"): ["optimizer={kind: adam, at: worker}"],
    ("optimizer={kind: sgd, nesterov: true}",): ["optimizer={kind: sgd, nesterov: true, momentum: 0.9}"],
    ("paradigm={kind: allreduce, density: 5 %}",): ["+paradigm=allreduce"],
    ("data_centers[west].workers=300",): [],
    ("order=dgt", "transport.tls=true"): ["order=fifo", "order=p3", "transport.tls=false"],
    ("background=[{kind: tcp, from: east, to: nowhere}]",): [],
    ("training.data={kind: teacher, side: 3}", "training.model=cnn"): [],
    ("training.data={kind: tokens, context: 8}", "training.model=transformer", "training.split=by_class"): [],
}


HUGE = "topology={generator: {kind: star, data_centers: 101, workers: 1000, rate: 1 Gbit/s, delay: 1 ms}}"
NORMALISES = f"{Path(__file__).parents[1] / 'testing/broken.py'}:NormalisesWholes"
LEAVES = "faults=[{kind: leave, node: west/worker0, round: 5}]"
FURTHER = [  # refusals whose rules have others with examples above, and with cures in ``test_cures``
    ("optimizer={kind: adam, at: global}", "codec={tier1: none, tier2: {kind: topk, pull: changed}}"),
    ("run.on=simulate", HUGE),
    ("training.data=tokens",),
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
    (PIPELINE, "paradigm.stages=3"),
    (PIPELINE, "topology.data_centers[0].workers=0", "paradigm.stages=1"),
    (PIPELINE, "paradigm.placement={kind: listed, order: east}"),
    (PIPELINE, "paradigm.micro_batches=40"),
    (PIPELINE, "training.accumulate=2"),
    (PIPELINE, "paradigm={kind: pipeline, micro_batches: 7, schedule: interleaved}"),
    (PIPELINE, "paradigm.cuts=3 2"),
    (PIPELINE, "paradigm.activations=demo"),
    (PIPELINE, "paradigm.error_feedback=true"),
    (PIPELINE, "paradigm.activations=powersgd", *MODELLED),
    (PIPELINE, "sync=tap"),
    (PIPELINE, "optimizer={kind: adam, at: worker}", "sync={kind: diloco, fragments: 2}"),
    (PIPELINE, "optimizer={kind: adam, clip_norm: 1}"),
    (SERVED, "order=p3"),
    (PIPELINE, "paradigm.replicas={kind: allreduce, overlap: buckets}"),
    (SERVED, "paradigm.replicas={kind: hips, inside: ring}"),
    (PIPELINE, "paradigm.replicas={kind: gossip, algorithm: adpsgd}"),
    (PIPELINE, "paradigm.replicas={kind: gossip, graph: network}"),
    (PIPELINE, "paradigm.replicas=gossip", "optimizer={kind: adam, at: worker}", "sync={kind: hfa, k1: 1, k2: 2}"),
    (SERVED, "order=dgt"),
    (SERVED, "paradigm.replicas={kind: hips, pull: rows}", "training.model=recommender", "training.data=clicks"),
    (SERVED, TREES),
    (SERVED, "aggregation=median"),
    (PIPELINE, "training.loading=cached"),
    (PIPELINE, "training.compile=true"),
    (PIPELINE, "recovery={on_failure: continue}"),
    (PIPELINE, "recovery={on_nan: skip}"),
    (PIPELINE, *SCRIPT),
]


def unchecked(*texts: str) -> Scenario:
    """Return GOOD with these overrides, without a look at the rules."""
    root = parse(GOOD, "s.yaml")
    assert not overrides.apply(root, texts, overrides.Known({"topology": ("data_centers",)}))
    return Scenario.read(plain(root), {"folder": SCRIPTS, "allow_code": True})


SCENARIOS = [(texts, unchecked(*texts)) for texts in (*EXAMPLES, *FURTHER)]


def test_every_refusal_is_met_by_an_example() -> None:
    files = {rule.__code__.co_filename for rule in RULES}
    refusals = {
        (file, node.lineno)
        for file in files
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Yield)
    }
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


MISFITS = ["sync=tap", "sync=deco", TREES, "aggregation=median", "order=dgt", "order=p3", "recovery={on_nan: skip}"]


@for_each(("paradigm", "misfit"), [(each, misfit) for each in (PIPELINE, SERVED) for misfit in MISFITS])
def test_what_does_not_go_with_a_pipeline_is_told_once(paradigm: str, misfit: str) -> None:
    places = [violation.at for violation in violations_of(unchecked(paradigm, misfit))]
    assert len(places) == len(set(places)) > 0


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


GLOBAL, WORKER = "{kind: sgd, at: global}", "{kind: sgd, at: worker}"


@for_each("kind", ["hfa", "diloco", "esync"])
def test_local_steps_have_the_same_options_on_both_tiers(kind: str) -> None:
    """Else those of one tier would be read for what the other one does: the outer optimizer, the first steps."""
    mine, theirs = f"{{kind: {kind}, weights: worker}}", f"{{kind: {kind}, weights: sample}}"
    loads(GOOD, overrides=[f"sync={{tier1: {mine}, tier2: {mine}}}", f"optimizer={WORKER}"])
    with pytest.raises(ScenarioError, match="the same options on both tiers"):
        loads(GOOD, overrides=[f"sync={{tier1: {mine}, tier2: {theirs}}}", f"optimizer={WORKER}"])


@for_each(
    ("settings", "reason"),
    [
        (("sync={kind: diloco, outer_momentum: 0.6}", f"optimizer={WORKER}"), "'nesterov' with these options changes"),
        (("sync=hfa", f"optimizer={WORKER}"), "a mean of models changes"),
        (("sync=fsa", f"optimizer={WORKER}"), "a sum of gradients changes"),
        (("sync=fsa", "optimizer={kind: adam, at: global}"), "'adam' with these options changes"),
        (("sync=fsa", "optimizer={kind: sgd, weight_decay: 0.1, at: global}"), "'sgd' with these options changes"),
    ],
)
def test_changed_values_are_sent_where_values_without_a_contribution_stay(
    settings: tuple[str, ...], reason: str
) -> None:
    changed = "codec={tier1: none, tier2: {kind: topk, pull: changed}}"
    with pytest.raises(ScenarioError, match=f"the values that have changed, but {reason} all of them"):
        loads(GOOD, overrides=[*settings, changed])
    loads(GOOD, overrides=["sync=fsa", "optimizer={kind: sgd, at: global}", changed])
    loads(GOOD, overrides=["sync={kind: diloco, outer_momentum: 0}", f"optimizer={WORKER}", changed])


def test_sums_come_down_to_optimizers_on_the_workers_on_both_tiers() -> None:
    """Differences from one sum to the next are no differences of parameters."""
    sums = "{kind: dgc, pull: sparse-sum}"
    for codec in ("{tier1: topk, tier2: none}", f"{{tier1: {{kind: dgc, bound: 10}}, tier2: {sums}}}"):
        with pytest.raises(ScenarioError, match=r"codec.tier1: 'pull: difference' needs parameters"):
            loads(GOOD, overrides=[f"codec={codec}", f"optimizer={WORKER}"])
        loads(GOOD, overrides=[f"codec={codec}", f"optimizer={GLOBAL}"])
    plain_inside = "codec={tier1: mpq, tier2: {kind: mpq, pull: sparse-sum}}"
    for accepted in ("codec={tier1: {kind: topk, pull: sparse-sum}, tier2: none}", plain_inside):
        loads(GOOD, overrides=[accepted, f"optimizer={WORKER}"])


def test_an_algorithm_that_needs_servers_is_refused_where_there_are_none_in_plain_words() -> None:
    with pytest.raises(ScenarioError, match="apply each worker's push as it arrives, but this paradigm has no servers"):
        loads(GOOD, overrides=["paradigm=allreduce", "sync=mixedsync"])
