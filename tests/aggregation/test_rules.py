"""Each rule equals a reference in plain torch, written from its paper, by itself and in a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from testbed.aggregation import AGGREGATION
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES, run
from tests.for_each import for_each

SHARE = 0.3


def reference_median(values: Tensor) -> Tensor:
    return values.quantile(0.5, dim=0)


def reference_trimmed_mean(values: Tensor) -> Tensor:
    out = torch.empty(values.shape[1])
    cut = int(SHARE * len(values))
    for element in range(values.shape[1]):
        column = sorted(values[:, element].tolist())
        out[element] = torch.tensor(column[cut : len(column) - cut]).mean()
    return out


def krum_scores(values: Tensor) -> list[float]:
    nearest = len(values) - int(SHARE * len(values)) - 2
    scores = []
    for mine in range(len(values)):
        distances = [
            float((values[mine] - values[it]).double().square().sum()) for it in range(len(values)) if it != mine
        ]
        scores.append(sum(sorted(distances)[:nearest]))
    return scores


def reference_krum(values: Tensor) -> Tensor:
    scores = krum_scores(values)
    return values[scores.index(min(scores))]


def reference_multi_krum(values: Tensor) -> Tensor:
    scores = krum_scores(values)
    chosen = sorted(range(len(values)), key=lambda member: scores[member])[: len(values) - int(SHARE * len(values)) - 2]
    return values[chosen].mean(dim=0)


def reference_norm_clip(values: Tensor) -> Tensor:
    norms = values.norm(dim=1)
    return torch.stack([each * min(1.0, float(norms.median() / each.norm())) for each in values]).mean(dim=0)


REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda values: values.mean(dim=0),
    "median": reference_median,
    "trimmed_mean": reference_trimmed_mean,
    "krum": reference_krum,
    "multi_krum": reference_multi_krum,
    "norm_clip": reference_norm_clip,
    "sent_mean": lambda values: values.mean(dim=0),
}
DEFENCES = [kind for kind in AGGREGATION if kind not in ("mean", "sent_mean")]


def contributions(members: int) -> Tensor:
    """Float32 [members, elements], the last three of them attackers'."""
    generator = torch.Generator().manual_seed(members)
    values = 1 + torch.randn(members, 40, generator=generator)
    values[-3:] *= -20
    return values


@for_each("kind", AGGREGATION)
def test_each_rule_is_its_reference(kind: str) -> None:
    options = {"share": SHARE} if hasattr(AGGREGATION[kind].Options, "share") else {}
    rule = AGGREGATION[kind](AGGREGATION.options(kind, options))
    values = contributions(11)
    weights = torch.full((11,), 1 / 11)
    parts = values.split([25, 15], dim=1)  # two keys
    measured = sum(rule.measure(part) for part in parts) if rule.whole else None
    found = torch.cat([rule.combine(part, weights, measured) for part in parts])
    assert torch.allclose(found, REFERENCES[kind](values), atol=1e-5)
    honest = values[:-3].mean(dim=0)
    assert (torch.norm(found - honest) < 8) == (kind in DEFENCES), "three attackers of eleven move it no further"


def test_an_element_is_the_mean_of_what_was_sent_of_it() -> None:
    rule = AGGREGATION["sent_mean"](AGGREGATION.options("sent_mean", {}))
    values = torch.tensor([[3.0, 0.0, 0.0], [1.0, 0.0, 4.0]])
    assert rule.combine(values, torch.tensor([0.25, 0.75]), None).tolist() == [1.5, 0.0, 4.0]


@for_each("sync", ["fsa", "{kind: diloco, h: 2}"])
def test_members_count_for_the_workers_that_they_stand_for(sync: str, tmp_path: Path) -> None:
    """A rule that shortens nothing is the mean, on both tiers, though data centres have 1, 2 and 1 workers."""
    small = ("training.model={kind: mlp, hidden: 8}", "training.rounds=3", "training.evaluate_every=3")
    job = (*small, "optimizer={kind: sgd, learning_rate: 0.05}", f"sync={sync}")
    mean = run(tmp_path / "mean", *job).parameters("hub/worker0")
    free = run(tmp_path / "free", *job, "aggregation={kind: norm_clip, limit: 1000}").parameters("hub/worker0")
    assert torch.allclose(mean, free, atol=1e-6)
    short = run(tmp_path / "short", *job, "aggregation={kind: norm_clip, limit: 0.1}").parameters("hub/worker0")
    assert not torch.allclose(mean, short, atol=1e-4)


REFUSED = [
    ("sync=tap", "aggregation=median", "each is applied by itself"),
    ("sync=mixedsync", "aggregation={tier1: mean, tier2: krum}", "each is applied by itself"),
    ("overlay={tier1: star, tier2: tree}", "aggregation=median", "relays add them up"),
    ("paradigm={kind: hips, inside: ring}", "aggregation={tier1: median, tier2: mean}", "sum among themselves"),
    ("paradigm=allreduce", "aggregation=median", "servers has no effect, as there are none"),
    ("codec=topk", "aggregation=trimmed_mean", "elements one by one"),
    ("sync=hfa", "aggregation=norm_clip", "whole models travel up"),
    ("sync=hfa", "aggregation=sent_mean", "whole models travel up"),
    ("sync={kind: diloco, h: 4, fragments: 2}", "aggregation=krum", "fragments of the model take turns"),
    ("recovery={on_failure: continue}", "aggregation=multi_krum", "a node may be lost"),
]
TAKEN = [
    ("sync=mixedsync", "aggregation={tier1: median, tier2: mean}"),
    ("overlay={tier1: star, tier2: {kind: tree, merge: exact}}", "aggregation=median"),
    ("paradigm={kind: hips, inside: ring}", "aggregation={tier1: mean, tier2: median}"),
    ("codec=topk", "aggregation=multi_krum"),
    ("codec=topk", "aggregation=sent_mean"),
    ("sync={kind: diloco, h: 4, fragments: 2}", "aggregation=median"),
    ("recovery={on_failure: continue}", "aggregation=trimmed_mean"),
]


@for_each(("other", "rule", "told"), REFUSED)
def test_a_rule_that_cannot_see_or_judge_is_refused(other: str, rule: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        load(THREE_SITES, (other, rule))


@for_each(("other", "rule"), TAKEN)
def test_what_goes_together_is_planned(other: str, rule: str) -> None:
    build_plan(load(THREE_SITES, (other, rule)), "simulate")
