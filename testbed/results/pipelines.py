"""The results of a pipeline: how long its stages waited, and how many bytes they exchanged.

Rounds of a pipeline are rounds of its replicas, as the stages of a replica make each step together, with the same
samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from testbed.ids import data_center_of, link_name

if TYPE_CHECKING:
    import pandas as pd

_ACTIVATIONS = ("activation", "activation-gradient")
_CONTROL = ("register", "ready", "barrier", "release", "done", "declare")


def workers_by_stage(plan: Mapping[str, Any]) -> list[list[str]]:
    """Return the workers of each stage; empty without a pipeline. ``plan`` is the content of ``plan.json``."""
    stages: dict[int, list[str]] = {}
    for node in plan["nodes"]:
        if node["role"] == "worker" and node.get("stage") is not None:
            stages.setdefault(node["stage"], []).append(node["name"])
    return [stages[stage] for stage in sorted(stages)]


def replicas_of(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the workers of each replica of a pipeline, by stage; empty for a run without a pipeline."""
    return list(zip(*workers_by_stage(plan), strict=True))


def rounds_of_replicas(rounds: pd.DataFrame, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each round of each replica of a pipeline; for a run without one, return ``rounds``.

    ``node`` of the row is the replica's first worker. The row's times span those of all its stages. Its samples are
    those of the stage that computes the loss, as other stages record none. Rounds that some stages have not completed
    are left out. If a restart has repeated a round, the last rows of all stages belong together.
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


class PipelineResult(TypedDict):
    """The results of a pipeline.

    bubble            share of their time in which stages wait, between the first and the last pass of each round
    activation_bytes  payload of activations and of their gradients, by pair of data centres: ``virginia>tokyo``, or
                      ``tokyo>tokyo`` inside one
    gradient_bytes    payload that replicas exchange, by pair of data centres
    memory_bytes      planned memory of the stage that needs most
    """

    bubble: float | None
    activation_bytes: dict[str, int]
    gradient_bytes: dict[str, int]
    memory_bytes: int | None


def pipeline_result(frames: Mapping[str, pd.DataFrame]) -> PipelineResult:
    """Return the results of a run with a pipeline from its tables."""
    transfers = frames["transfers"]
    of_stages = transfers["message"].isin(_ACTIVATIONS)
    of_training = ~of_stages & (transfers["round"] >= 0) & ~transfers["message"].isin(_CONTROL)
    memory = frames["stages"]["memory_bytes"].max() if len(frames["stages"]) else None
    return PipelineResult(
        bubble=bubble_of(frames["computes"]),
        activation_bytes=_by_way(transfers[of_stages]),
        gradient_bytes=_by_way(transfers[of_training]),
        memory_bytes=None if memory is None else int(memory),
    )


def bubble_of(computes: pd.DataFrame) -> float | None:
    """Return the share of the time from a round's first pass to its last in which stages wait.

    Return ``None`` if passes are not recorded.
    """
    passes = computes[(computes["work"] == "step") & (computes["part"].fillna("") != "")]
    if passes.empty:
        return None
    busy_s = (passes["t_s"] - passes["t0_s"]).sum()
    by_round = passes.groupby("round")
    spans_s = (by_round["t_s"].max() - by_round["t0_s"].min()) * passes["node"].nunique()
    return round(float(1 - busy_s / spans_s.sum()), 6)


def _by_way(transfers: pd.DataFrame) -> dict[str, int]:
    """Return the payload bytes by pair of data centres; pairs without any are left out."""
    ways: dict[str, int] = {}
    sums: Any = transfers.groupby(["source", "target"])["payload_bytes"].sum()
    for (source, target), size_bytes in sums.items():
        way = link_name(data_center_of(source), data_center_of(target))
        ways[way] = ways.get(way, 0) + int(size_bytes)
    return {way: size_bytes for way, size_bytes in sorted(ways.items()) if size_bytes}
