"""Partial pull: the bits of whole tables, with the bytes of the rows that batches need."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from testbed.engine.learner import make_learner
from testbed.engine.slicing import table_widths
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import load
from testbed.training.learner import SegmentedLearner
from testbed.training.trainer import Trainer
from tests.end_to_end.runs import run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible
from tests.engine.runs import THREE_SITES, Simulated, run
from tests.for_each import for_each

WIDTH, HIDDEN, ROWS = 4, 8, 300
ROUNDS = 6
SMALL = (
    f"training.model={{kind: recommender, rows: {ROWS}, width: {WIDTH}, hidden: {HIDDEN}}}",
    "training.data={kind: clicks, categories: 200, train_samples: 2000, test_samples: 200}",
    "training.batch=8",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=4",
    "device.step_time=20 ms",
    "optimizer={kind: adam, learning_rate: 0.02}",
)
DENSE = (3 * WIDTH * HIDDEN + HIDDEN, HIDDEN * 2 + 2)
SETTINGS: dict[str, tuple[str, ...]] = {
    "adam": (),
    "momentum and decay": ("optimizer={kind: sgd, learning_rate: 0.3, momentum: 0.9, weight_decay: 0.01}",),
    "lars": ("optimizer={kind: lars, learning_rate: 0.5}",),
    "one tier": ("paradigm=ps",),
    "fp16": ("codec=fp16",),
    "layers": ("order={kind: fifo, overlap: layers}",),
    "slices": ("order={kind: p3, slice: 400 bytes}",),
    "two servers": ("data_centers[hub].global_servers=2", "shard={kind: multigps, bound: 50}"),
    "no evaluation": ("training.evaluate_every=100",),
    "two tables": (
        "training.model={kind: transformer, layers: 1, heads: 2, head_width: 4}",
        f"training.data={{kind: text, file: {Path(__file__)}, context: 4}}",
        "training.batch=2",
    ),
}


EMULATED = pytest.param("emulate", marks=[pytest.mark.emulation, pytest.mark.slow])  # 6 s


def pulling(pull: str, *texts: str) -> tuple[str, ...]:
    kind = "ps" if "paradigm=ps" in texts else "hips"
    return (*SMALL, *(text for text in texts if text != "paradigm=ps"), f"paradigm={{kind: {kind}, pull: {pull}}}")


def scores(run: Simulated) -> list[tuple[int, float, float]]:
    return [(event["round"], event["accuracy"], event["loss"]) for event in run.of_kind("evaluate")]


@pytest.mark.sample(1)  # of 10, which take 7 s
@pytest.mark.parametrize("name", SETTINGS)
def test_rows_have_the_bits_of_whole_tables(name: str, tmp_path: Path) -> None:
    whole, rows = (run(tmp_path / pull, *pulling(pull, *SETTINGS[name])) for pull in ("all", "rows"))
    first = whole.plan.training_workers[0].name
    assert torch.equal(whole.parameters(first), rows.parameters(first))
    assert scores(whole) == scores(rows)
    losses = [[event["loss"] for event in each.of_kind("round")] for each in (whole, rows)]
    assert sorted(losses[0]) == sorted(losses[1]), "every batch of every worker met the same values"


def test_only_the_worker_that_evaluates_ends_with_the_model(tmp_path: Path) -> None:
    ended = {event["node"]: event for event in run(tmp_path, *pulling("rows")).of_kind("final")}
    assert ended["hub/worker0"]["parameters_sha256"] == ended["hub/global0"]["parameters_sha256"]
    assert all(ended[name]["parameters_sha256"] is None for name in ("east/worker0", "east/worker1", "west/worker0"))


def test_a_target_ends_the_run_with_the_whole_model(tmp_path: Path) -> None:
    settings = ("training.target_accuracy=0.1", "training.evaluate_every=1")
    whole, rows = (run(tmp_path / pull, *pulling(pull, *settings)) for pull in ("all", "rows"))
    assert scores(whole) == scores(rows)
    assert max(event["round"] for event in rows.of_kind("round")) == 2, "the score of round 1 is known in round 2"
    assert torch.equal(whole.parameters("hub/worker0"), rows.parameters("hub/worker0"))


def needed(plan: Plan, site: str) -> list[set[int]]:
    """Rows that the workers of a data centre look up, by step."""
    learners = [cast(Trainer, make_learner(plan, node)) for node in plan.training_workers if node.data_center == site]
    return [{row for learner in learners for row in learner.rows(step)[0].tolist()} for step in range(ROUNDS + 1)]


def sent(run: Simulated, message: str, source: str, target: str) -> list[int]:
    """Payload of the table's messages, by round."""
    bytes_ = Counter(dict.fromkeys(range(ROUNDS), 0))
    for event in run.of_kind("transfer"):
        where = (event["message"], event["source"], event["target"])
        if where == (message, source, target) and event["round"] >= 0 and event["key"] == 0:
            bytes_[event["round"]] += event["payload_bytes"]
    return list(bytes_.values())


@for_each(("codec", "element_bytes"), [("none", 4), ("fp16", 2)])
def test_the_bytes_are_those_of_the_rows(codec: str, element_bytes: int, tmp_path: Path) -> None:
    rows = run(tmp_path, *pulling("rows", f"codec={codec}"))
    looked_up = needed(rows.plan, "east")
    up, down = "east/server0", "hub/global0"
    row_bytes = element_bytes * WIDTH
    expected = [4 * (len(asked) + len(now)) + row_bytes * len(now) for now, asked in pairwise(looked_up)]
    assert sent(rows, "push", up, down) == expected
    assert sent(rows, "value", down, up) == [row_bytes * len(asked) for asked in looked_up[1:]]
    # the first worker needs the whole model where it is evaluated: after round 3 and at the end
    values = sent(rows, "value", "hub/global0", "hub/server0")
    whole = [round_ for round_, size in enumerate(values) if size == element_bytes * ROWS * WIDTH]
    assert whole == [3, ROUNDS - 1]
    assert max(size for round_, size in enumerate(values) if round_ not in whole) < element_bytes * ROWS * WIDTH / 4


@for_each("sync", ["tap", "{kind: ssp, staleness: 1}", "{tier1: fsa, tier2: mixedsync}"])
def test_without_waiting_each_batch_meets_the_rows_of_the_last_update(sync: str, tmp_path: Path) -> None:
    """Steps are so long and different that the order of updates does not depend on the bytes."""
    kind = "hips" if "tier1" in sync else "ps"
    apart = (
        "device.step_time=1 s",
        "data_centers[east].workers=1",
        "data_centers[east].device.speed=0.83",
        "data_centers[west].device.speed=0.59",
        "links[*].rate=1 Gbit/s",
        "links[*].delay=1 ms",
    )
    texts = (*SMALL, *apart, f"sync={sync}", "optimizer={kind: dcasgd, learning_rate: 0.3}")
    whole, rows = (run(tmp_path / pull, *texts, f"paradigm={{kind: {kind}, pull: {pull}}}") for pull in ("all", "rows"))
    assert scores(whole) == scores(rows)
    assert torch.equal(whole.parameters("hub/global0"), rows.parameters("hub/global0"))
    assert max(event["staleness"] for event in rows.of_kind("update")) > 0


@pytest.mark.parametrize("back_end", ["local", EMULATED])
def test_real_worlds_end_with_the_same_bits_and_move_the_same_bytes(back_end: str, tmp_path: Path) -> None:
    skip_unless_possible(back_end)
    virtual = run(tmp_path / "virtual", *pulling("rows"))
    real = run_scenario(tmp_path / "real", back_end, *pulling("rows"), scenario=THREE_SITES)
    assert real.outcome.status == "done", real.outcome.message
    finals, expected = (
        {event["node"]: event.get("parameters_sha256") for event in each.of_kind("final")} for each in (real, virtual)
    )
    assert finals == expected

    def payload(events: list[dict[str, Any]]) -> int:
        return sum(event["payload_bytes"] for event in events if event["kind"] == "transfer" and event["round"] >= 0)

    assert payload(real.events) == payload(virtual.events)


def test_a_model_that_looks_nothing_up_is_refused() -> None:
    plan = build_plan(load(THREE_SITES, pulling("rows")), "simulate")
    learner = cast(SegmentedLearner, SimpleNamespace(widths={}))
    with pytest.raises(ScenarioError, match=r"looks up no rows.*write 'pull: all'"):
        table_widths(plan, learner)
