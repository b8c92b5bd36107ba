"""Rounds of a pipeline, as its replicas have them: the stages of one make each step together, of the same samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def workers_by_stage(plan: Mapping[str, Any]) -> list[list[str]]:
    """Return the workers of each stage of a pipeline; nothing of a run without one. ``plan``: as in ``plan.json``."""
    stages: dict[int, list[str]] = {}
    for node in plan["nodes"]:
        if node["role"] == "worker" and node.get("stage") is not None:
            stages.setdefault(node["stage"], []).append(node["name"])
    return [stages[stage] for stage in sorted(stages)]


def replicas_of(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the workers of each replica of a pipeline, by stage; nothing of a run without one."""
    return list(zip(*workers_by_stage(plan), strict=True))


def rounds_of_replicas(rounds: pd.DataFrame, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each round of a replica of a pipeline; of a run without one, the table as it is.

    The row has the name of the replica's first worker. It begins with the first of the stages and ends with the last
    one. Samples are those of the stage that sees the loss, as the others record none. Rounds that some stages have not
    completed are left out; of those that a restart has repeated, the last rows of all stages belong together.
    """
    replicas = replicas_of(plan)
    if not replicas:
        return rounds
    first = {worker: replica[0] for replica in replicas for worker in replica}
    attempt = rounds.groupby(["node", "round"]).cumcount(ascending=False)
    named = rounds.assign(worker=rounds["node"], node=rounds["node"].map(first), attempt=attempt)
    named = named.fillna({"steps": 1}).sort_values(["t_s"], kind="stable")
    joined = named.groupby(["node", "round", "attempt"], as_index=False).agg(
        t0_s=("t0_s", "min"),
        t_s=("t_s", "max"),
        steps=("steps", "max"),
        samples=("samples", "sum"),
        stages=("worker", "nunique"),
    )
    return joined[joined["stages"] == len(replicas[0])].sort_values(["node", "t_s"], ignore_index=True)
