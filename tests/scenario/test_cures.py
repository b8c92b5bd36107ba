"""What a refusal proposes is accepted, and trains: every cure of every rule over techniques, applied as it says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testbed.execution import host, record
from testbed.plan.build import build_plan
from testbed.scenario import loads
from testbed.scenario.rules import violations_of
from testbed.scenario.schema import Scenario
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD
from tests.scenario.test_rules import EXAMPLES, GLOO, RELAYS, RING, SCRIPT, SCRIPTS, TABLES, TREES, unchecked

REMOVED = "-"  # before a path: "remove it"
ALSO = "+"  # before a setting: a second refusal proposes it, or it is what is left when an option is removed
HIPS = "paradigm=hips"
PLAIN = ("overlay=star", "order=fifo")
AT_SERVERS = ("paradigm={kind: hips, inside: servers}",)
CURES: dict[str, list[tuple[str, ...]]] = {
    # the last setting of an example of ``test_rules``, and what its refusals propose
    "codec={tier1: none, tier2: bisparse}": [("codec={tier1: none, tier2: {kind: bisparse, pull: sparse-sum}}",)],
    "order={kind: p3, overlap: layers}": [("order={kind: p3, overlap: none}",)],
    "codec=bisparse": [("codec={kind: bisparse, momentum: 0}",)],
    "codec=fp16": [("codec=none",)],
    "shard=multigps": [("-shard",), (HIPS,)],
    "order=p3": [("-order",), (HIPS,)],
    "overlay=tsengine": [("-overlay",), (HIPS,)],
    "codec=twobit": [("overlay={tier1: {kind: tree, merge: exact}, tier2: {kind: tree, merge: exact}}",),
                     ("codec=none",), ("codec=fp16",)],
    "order=dgt": [("overlay={tier1: tree, tier2: star}",)],
    "codec={tier1: none, tier2: twobit}": [
        ("codec={tier1: none, tier2: none}",), ("codec={tier1: none, tier2: fp16}",),
    ],
    "recovery={replicas: 1}": [
        ("recovery={replicas: 0}",),
        *((f"sync={sync}", "recovery={replicas: 1, on_failure: continue}") for sync in ("fsa", "bsp")),
        *(("sync=" + sync, "+optimizer={kind: adam, at: worker}", "recovery={replicas: 1, on_failure: continue}")
          for sync in ("hfa", "diloco")),
    ],
    "faults=[{kind: disk_full, node: '*', round: 3}]": [("checkpoint={every: 10}",)],
    "faults=[{kind: join, node: west/worker0, at: 5 s}]": [("recovery={on_failure: continue}",)],
    "faults=[{kind: leave, node: west/worker0, round: 5}]": [("codec=none",), ("codec=fp16",)],
    "sync={tier1: fsa, tier2: ssp}": [("sync=ssp",)],
    "sync={tier1: tap, tier2: fsa}": [
        (f"sync={{tier1: tap, tier2: {sync}}}",) for sync in ("mixedsync", "tap", "ssp")
    ],
    "sync=hfa": [("optimizer={kind: adam, at: worker}",)],
    "optimizer={kind: sgd, nesterov: true}": [("optimizer={kind: sgd, nesterov: true, momentum: 0.9}",)],
    "paradigm={kind: allreduce, density: 5 %}": [("+paradigm=allreduce",)],
    "paradigm={kind: hips, pull: rows}": [("paradigm={kind: hips, pull: all}",)],
    "transport.tls=true": [("order=fifo",), ("order=p3",), ("transport.tls=false",)],
}  # fmt: skip
OF_SEVERAL: dict[tuple[str, ...], list[tuple[str, ...]]] = {
    # examples whose last setting is not the one that is changed
    (RING, "sync=tap"): [("sync=fsa",), AT_SERVERS],
    (RING, "optimizer={kind: adam, at: worker}", "sync=esync"): [
        *((f"sync={sync}",) for sync in ("fsa", "hfa", "diloco", "bsp")), AT_SERVERS,
    ],
    (RING, "optimizer={kind: adam, at: worker}", "sync={kind: diloco, fragments: 2}"): [
        ("+sync=diloco",), AT_SERVERS
    ],
    (RING, "codec={tier1: fp16, tier2: fp16}"): [("codec={tier1: none, tier2: fp16}",), AT_SERVERS],
    (RING, "overlay={tier1: tree, tier2: star}"): [("overlay={tier1: star, tier2: star}",), AT_SERVERS],
    (RING, "order={kind: fifo, overlap: layers}"): [("order={kind: fifo, overlap: none}",), AT_SERVERS],
    (*TABLES, "paradigm={kind: hips, inside: ring, pull: rows}"): [
        ("paradigm={kind: hips, inside: ring, pull: all}",), ("paradigm={kind: hips, inside: servers, pull: rows}",)
    ],
    (*SCRIPT, RING): [AT_SERVERS],
    (*SCRIPT, "sync=esync"): [
        ("sync={kind: esync, fixed_steps: 4}",), *((f"sync={sync}",) for sync in ("fsa", "hfa", "diloco", "bsp")),
    ],
    (*SCRIPT, "sync={kind: hfa, weights: sample}"): [
        ("sync={kind: hfa, weights: worker}",), ("sync={kind: hfa, weights: party}",)
    ],
    (*SCRIPT, "sync={kind: diloco, fragments: 2}"): [("+sync=diloco",)],
    (*SCRIPT, "sync={kind: diloco, overlap_steps: 1}"): [("+sync=diloco",)],
    (*SCRIPT, "order=dgt"): [("order={kind: dgt, adaptive: false}",), ("order=fifo",)],
    (RING, "recovery={on_failure: continue}"): [("recovery={on_failure: restart}",), AT_SERVERS],
    (GLOO, "run.on=simulate"): [("run.on=local",), ("run.on=emulate",), (RING,)],
    (GLOO, "transport.tls=true"): [(RING,), ("transport.tls=false",)],
    ("paradigm={kind: allreduce, algorithm: hitopk, inside: gloo}", "run.on=simulate"): [
        ("run.on=local",), ("paradigm={kind: allreduce, algorithm: hitopk, inside: ring}",)
    ],
    ("paradigm={kind: allreduce, inside: gloo}",): [("+paradigm=allreduce",)],
    ("order=dgt", "sync=hfa", "optimizer={kind: adam, at: worker}"): [
        ("order={kind: dgt, late: retransmit, code: exact}",)
    ],
    ("paradigm=ps", "sync=hfa", "optimizer={kind: adam, at: worker}"): [("sync={kind: hfa, k2: 1}",)],
    ("overlay={tier1: tree, tier2: tree}", "sync=tap"): [("overlay={kind: tree, merge: exact}",)],
    ("overlay={tier1: tsengine, tier2: tsengine}", "sync=tap"): [
        ("overlay={kind: tree, merge: exact}",), ("overlay={kind: netstorm, merge: exact}",), ("overlay=star",),
        ("sync=fsa",),
    ],
    ("paradigm=allreduce", "sync=tap"): [("sync=fsa",), (HIPS,)],
    ("paradigm={kind: allreduce, overlap: buckets}", "sync=diloco"): [("paradigm={kind: allreduce, overlap: after}",)],
    ("paradigm=gloo", "run.on=local", "sync=hfa"): [("sync={kind: hfa, k2: 1}",)],
    ("paradigm=gossip", "sync={kind: diloco, fragments: 2}"): [("+sync=diloco",), ("paradigm=allreduce",)],
    ("optimizer={kind: adam, at: worker}", "overlay=tree", "sync={kind: diloco, fragments: 2}"): [
        ("overlay=star",), ("+sync=diloco",)
    ],
    ("paradigm={kind: allreduce, optimizer_work: update}", "sync={kind: diloco, fragments: 2}"): [
        ("paradigm={kind: allreduce, optimizer_work: replicated}",)
    ],
    ("sync=hfa", "optimizer=dcasgd"): [("optimizer={kind: sgd, at: worker}",), ("optimizer={kind: adam, at: worker}",)],
    ("sync=mixedsync", "optimizer=dcasgd", "codec={tier1: none, tier2: bisparse}"): [
        ("codec={tier1: none, tier2: {kind: bisparse, pull: dense}}",)
    ],
    ("paradigm={kind: gossip, step: 0.5}",): [("paradigm={kind: gossip, step: 0}",)],
    ("paradigm={kind: gossip, gradients: mean}", "sync=diloco"): [("paradigm={kind: gossip, gradients: sum}",)],
    ("paradigm={kind: gossip, algorithm: adpsgd}", "sync=esync"): [
        ("paradigm={kind: gossip, algorithm: dpsgd}",),
        *((f"sync={sync}",) for sync in ("fsa", "hfa", "diloco", "bsp")),
    ],
    ("order={kind: p3, overlap: layers}", "training.accumulate=2"): [
        ("order={kind: p3, overlap: none}",), ("training.accumulate=1",)
    ],
    ("paradigm={kind: allreduce, overlap: buckets}", "training.accumulate=2"): [
        ("paradigm={kind: allreduce, overlap: after}",), ("training.accumulate=1",)
    ],
    ("paradigm=allreduce", "codec={tier1: fp16, tier2: none}"): [("codec=none",)],
    ("paradigm={kind: allreduce, algorithm: hitopk}", "data_centers[west].workers=3"): [
        ("paradigm={kind: allreduce, algorithm: flat_topk}",)
    ],
    ("paradigm={kind: allreduce, optimizer_work: norms}",): [
        ("paradigm={kind: allreduce, optimizer_work: update}",), ("optimizer=lars",)
    ],
    ("optimizer=lars", "data_centers[west].workers=3", "paradigm={kind: allreduce, optimizer_work: update}"): [
        ("paradigm={kind: allreduce, optimizer_work: update, shared_by: all}",)
    ],
    ("training.loading=cached", "order={kind: p3, overlap: layers}"): [("order={kind: p3, overlap: none}",)],
    ("paradigm=allreduce", "order={kind: fifo, overlap: layers}"): [
        ("order={kind: fifo, overlap: none}",),
        ("order={kind: fifo, overlap: none}", "paradigm={kind: allreduce, overlap: buckets}"),
    ],
    (*TABLES, "training.loading=cached"): [("training.loading=in_memory",)],
    (*TABLES, "codec={tier1: none, tier2: twobit}"): [("codec=none",), ("codec=fp16",)],
    (*TABLES, "overlay={tier1: star, tier2: tree}"): [("overlay=star",)],
    (*TABLES, "order=dgt"): [("order=fifo",), ("order=p3",)],
    (*TABLES, "optimizer={kind: adam, at: worker}"): [("optimizer={kind: adam, at: global}",)],
    (*TABLES, "sync={tier1: tap, tier2: mixedsync}"): [
        ("sync={tier1: fsa, tier2: mixedsync}",), ("paradigm={kind: ps, pull: rows}", "+sync=tap")
    ],
    (*TABLES, "recovery={on_failure: continue}"): [
        ("recovery={on_failure: restart}",), ("recovery={on_failure: abort}",)
    ],
    ("recovery={on_nan: skip}", "paradigm=allreduce"): [("recovery={on_nan: abort}",)],
    ("optimizer={kind: sgd, clip_norm: 1}", "topology.data_centers[0].global_servers=2"): [
        ("topology.data_centers[0].global_servers=1",), ("optimizer.at=worker",),
    ],
    ("optimizer={kind: sgd, at: worker}", "paradigm=gossip"): [
        ("optimizer.at=global",), ("optimizer.at=global", "paradigm={kind: gossip, gradients: mean}"),
    ],
    ("order={kind: fifo, slice: 4 KiB}", "paradigm=allreduce"): [("-order",), ("paradigm=hips",)],
    ("device.server_device=cuda", "paradigm=allreduce"): [("-device.server_device",)],
    ("recovery={max_restarts: 7}",): [("recovery={max_restarts: 7, on_failure: restart}",)],
    ("training.split={kind: dirichlet, alpha: 0.5}", "training.compute=modelled", "run.on=simulate"): [
        ("-training.split",),
    ],
    ("optimizer={kind: sgd, clip_norm: 1}", "sync=tap"): [("paradigm=ps",), ("sync=mixedsync",)],
    ("optimizer={kind: sgd, clip_norm: 1}", "recovery={on_failure: continue}"): [
        ("recovery={on_failure: restart}",), ("optimizer.at=worker",),
    ],
    ("recovery={on_nan: ignore}", "training.compute=modelled", "run.on=simulate"): [("recovery={on_nan: abort}",)],
    ("faults=[{kind: down, link: '*', at: 5 s, for: 1 s}]", "run.on=local"): [
        ("run.on=emulate",),
        ("run.on=simulate",),
    ],
    ("recovery={on_failure: continue}", "sync=mixedsync", RELAYS): [
        ("recovery={on_failure: restart}",), ("overlay=star",)
    ],
    ("recovery={on_failure: continue}", TREES, "codec={tier1: none, tier2: topk}"): [
        ("codec={tier1: none, tier2: {kind: topk, pull: dense}}",), ("overlay=star",),
        ("recovery={on_failure: restart}",),
    ],
    ("recovery={on_failure: continue}", "paradigm={kind: allreduce, algorithm: hitopk}"): [
        ("recovery={on_failure: restart}",), (HIPS,), ("paradigm=ps",), ("paradigm=allreduce",), ("paradigm=gossip",)
    ],
    ("paradigm=gloo", "run.on=simulate"): [
        ("paradigm={kind: allreduce, algorithm: ring}",), ("run.on=local",), ("run.on=emulate",)
    ],
}  # fmt: skip
OTHER = ("training", "workload", "cluster", "device.pace", "device.kind", "data_centers", "background",
         "order={kind: dgt", "faults=[{kind: nan", "faults=[{kind: reorder")  # fmt: skip
"""Examples of compute, data, scripts, sizes and names, whose cures choose no technique, begin with these."""


def cures_of(texts: tuple[str, ...]) -> list[tuple[str, ...]]:
    return OF_SEVERAL.get(texts, CURES.get(texts[-1], []))


def cured(texts: tuple[str, ...], cure: tuple[str, ...]) -> list[str]:
    """Return the settings of an example with those of the cure, one for each path."""
    found: dict[str, str] = {}
    for text in (*texts, *cure):
        path, _, value = text.lstrip(REMOVED + ALSO).partition("=")
        if text.startswith(REMOVED):
            found.pop(path, None)
        else:
            found[path] = value
    return [f"{path}={value}" for path, value in found.items()]


CASES = [(texts, cure) for texts in EXAMPLES for cure in cures_of(texts)]


def test_every_refusal_of_a_technique_is_in_the_table() -> None:
    left = [texts for texts in EXAMPLES if not cures_of(texts) and not texts[0].startswith(OTHER)]
    assert left == []


@for_each(("texts", "cure"), CASES)
def test_the_cure_is_what_the_refusal_says_and_is_accepted(texts: tuple[str, ...], cure: tuple[str, ...]) -> None:
    hints = " ".join(violation.hint for violation in violations_of(unchecked(*texts)))
    for setting in cure:
        words = setting.partition("=")[2].strip("{}").replace("kind: ", "").split(", ")
        written = {word for text in texts for word in text.partition("=")[2].strip("{}").split(", ")}
        new = [word.split(": ")[-1].strip("{}") for word in words if word not in written]
        assert setting[0] in (REMOVED, ALSO) or any(word in hints for word in new), (setting, hints)
    loads(GOOD, "s.yaml", overrides=cured(texts, cure), folder=SCRIPTS)


def outcome_of(scenario: Scenario, folder: Path) -> str:
    """Train in virtual time, and return status and message."""
    plan = build_plan(scenario)
    run = record.prepare(folder, plan, scenario=b"", resolved="", capabilities={})
    outcome = record.conclude(run, plan, host.attempt(plan, run.path, lambda event: None), "", 0.0).outcome
    return f"{outcome.status} {outcome.message}".strip()


def short(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return settings that make a run short.

    In few rounds no element passes the threshold of two-bit quantisation, and few rows of a table are looked up.
    """
    if any(text.startswith("workload") for text in texts):
        return ("run.on=simulate", "training={rounds: 20}")
    rounds = 120 if any("twobit" in text or "recommender" in text for text in texts) else 20
    model = () if any(text.startswith("training.model") for text in texts) else ("training.model=mlp",)
    return ("run.on=simulate", f"training.rounds={rounds}", "training.evaluate_every=5", *model)


def train(texts: tuple[str, ...], cure: tuple[str, ...], folder: Path) -> str:
    settings = cured(tuple(cured(texts, cure)), short(texts))
    return outcome_of(loads(GOOD, "s.yaml", overrides=settings, folder=SCRIPTS), folder)


def in_virtual_time(texts: tuple[str, ...], cure: tuple[str, ...]) -> bool:
    library = "paradigm=gloo" in texts and not cure[0].startswith("paradigm")
    return not library and not any(text.startswith("run.on=") for text in cure)


TRAINABLE = [case for case in CASES if in_virtual_time(*case)]


@pytest.mark.slow  # 1 s each; drawn, as each takes as long as all checks of the text above
@pytest.mark.parametrize(("texts", "cure"), random.Random(1).sample(TRAINABLE, 24), ids=str)
def test_the_cure_trains(texts: tuple[str, ...], cure: tuple[str, ...], tmp_path: Path) -> None:
    outcome = train(texts, cure, tmp_path / "run")
    # in the few rounds here, LARS comes to no accuracy
    assert outcome.split()[0] in ("done", "degraded") or "the accuracy stayed at" in outcome
