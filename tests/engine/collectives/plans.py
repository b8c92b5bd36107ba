"""Plans of runs without servers: workers in data centres, and a scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.engine.roles import make_role
from testbed.plan.model import Plan, TrainingPlan
from testbed.settings.job import Choice, Device
from tests.contract.tiny import tiny_plan
from tests.engine.collectives.worlds import names_of


def serverless_plan(
    groups: list[int],
    paradigm: str,
    options: dict[str, Any],
    *,
    rounds: int = 4,
    model: Choice | None = None,
    step_times_s: dict[str, float] | None = None,
    **training: Any,
) -> Plan:
    """Workers of data centres a, b, …; digits, a small perceptron, SGD."""
    names = names_of(groups)
    plan = tiny_plan([*names, "a/scheduler"])
    workers = tuple(
        replace(plan.node(name), device=Device(step_time_s=(step_times_s or {}).get(name, 0.01))) for name in names
    )
    job = TrainingPlan(
        model=model or Choice(kind="mlp", options={"hidden": 24}),
        data=Choice(kind="digits"),
        split=Choice(kind="iid"),
        batch_size=8,
        rounds=rounds,
        evaluate_every=2,
        **training,
    )
    technique = replace(
        plan.technique,
        paradigm=Choice(kind=paradigm, options=options),
        optimizer=Choice(kind="sgd", options={"learning_rate": 0.02}),
    )
    nodes = (*(replace(worker, rank=rank) for rank, worker in enumerate(workers)), plan.node("a/scheduler"))
    return replace(plan, nodes=nodes, training=job, technique=technique)


def run_plan(runs: Any, plan: Plan) -> dict[str, Any]:
    """What each worker's role returned."""
    results = runs({node.name: make_role(plan, node) for node in plan.nodes}, plan)
    return {name: result for name, result in results.items() if result is not None}
