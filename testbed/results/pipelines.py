"""What a pipeline has done with its time and its links: how long stages waited, and what went between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from testbed.ids import data_center_of, link_name

if TYPE_CHECKING:
    import pandas as pd

_ACTIVATIONS = ("activation", "activation-gradient")
_CONTROL = ("register", "ready", "barrier", "release", "done", "declare")


class PipelineResult(TypedDict):
    """bubble            share of the stages' time, from the first pass of a round to its last, in which they wait
    activation_bytes  by way, ``virginia>tokyo``: payload of activations and of their gradients; inside a data centre,
                      ``tokyo>tokyo``
    gradient_bytes    by way, payload of what replicas exchange
    memory_bytes      of the stage that needs most, as it was planned
    """

    bubble: float | None
    activation_bytes: dict[str, int]
    gradient_bytes: dict[str, int]
    memory_bytes: int | None


def pipeline_result(frames: Mapping[str, pd.DataFrame]) -> PipelineResult:
    """Return what the tables of a run with a pipeline say."""
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
    """Return the share of the time of a round's passes in which stages wait; ``None`` if passes are not recorded."""
    passes = computes[(computes["work"] == "step") & (computes["part"].fillna("") != "")]
    if passes.empty:
        return None
    busy_s = (passes["t_s"] - passes["t0_s"]).sum()
    by_round = passes.groupby("round")
    spans_s = (by_round["t_s"].max() - by_round["t0_s"].min()) * passes["node"].nunique()
    return round(float(1 - busy_s / spans_s.sum()), 6)


def _by_way(transfers: pd.DataFrame) -> dict[str, int]:
    """Return the payload bytes from each data centre to each other."""
    ways: dict[str, int] = {}
    sums: Any = transfers.groupby(["source", "target"])["payload_bytes"].sum()
    for (source, target), size_bytes in sums.items():
        way = link_name(data_center_of(source), data_center_of(target))
        ways[way] = ways.get(way, 0) + int(size_bytes)
    return {way: size_bytes for way, size_bytes in sorted(ways.items()) if size_bytes}
