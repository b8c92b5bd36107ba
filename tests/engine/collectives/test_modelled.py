"""Runs with sizes and no numbers: the same messages, at the same times, as with the true mathematics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import worlds
from tests.engine.runs import MODELLED, run
from tests.for_each import for_each


def transfers(paradigm: str, options: dict[str, Any], compute: str, directory: Path) -> list[tuple[Any, ...]]:
    plan = serverless_plan([2, 2], paradigm, options, rounds=3)
    plan = replace(plan, training=replace(plan.training, compute=compute))
    runs = worlds("virtual", directory / compute)
    names = list(run_plan(runs, plan))
    events = [event for name in names for event in runs.events(name) if event["kind"] == "transfer"]
    return [(e["t"], e["source"], e["target"], e["round"], e["payload_bytes"], e["header_bytes"]) for e in events]


@for_each(
    ("paradigm", "options"),
    [
        ("allreduce", {"algorithm": "blueconnect", "segments": 2}),
        ("allreduce", {"algorithm": "hitopk", "density": 0.02}),
        ("allreduce", {"algorithm": "flat_topk", "density": 0.02}),
        ("gossip", {"algorithm": "sgp", "graph": "exponential"}),
        ("gossip", {"algorithm": "dpsgd"}),
        ("gossip", {"algorithm": "adpsgd"}),
    ],
)
def test_modelled_runs_send_what_real_ones_send(paradigm: str, options: dict[str, Any], tmp_path: Path) -> None:
    real, modelled = (transfers(paradigm, options, compute, tmp_path) for compute in ("real", "modelled"))
    assert modelled == real
    assert len(real) > 20


@for_each("paradigm", ["allreduce", "ps"])
def test_first_values_may_take_longer_than_nodes_take_to_meet(paradigm: str, tmp_path: Path) -> None:
    """45 MB over 5 Mbit/s: who has them waits more than a minute for the others."""
    slow = (f"paradigm={paradigm}", "links[*].rate=5 Mbit/s", "training.rounds=1", "training.evaluate_every=1")
    done = run(tmp_path, *MODELLED[:-1], *slow)
    assert done.of_kind("train")[0]["t"] > done.plan.timeouts.rendezvous_s
