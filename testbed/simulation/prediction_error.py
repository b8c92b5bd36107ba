"""The error of simulated rounds, measured against exact runs of the same Plans.

The error depends on the network model, the congestion control and the regime. ``prediction_errors.csv`` has the
measurements, each row with its source. Regimes:

usual    neither of the following
shared   small differences decide: workers of a data centre have their own connections across the WAN, which share
         queues; or packets were dropped at a link that several connections share; or an overlay decides by measured
         times, about trees or about each transfer
doubted  the run doubts its own prediction (``testbed.simulation.validity``); only runs over flows do
fast     a WAN link is faster than 1 Gbit/s; the measurements go up to half of that

Combinations that were never measured, such as fast links, an ideal network or Reno, have no error, and nothing is
claimed.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.plan.model import Plan
from testbed.policy.overlay import OVERLAYS
from testbed.policy.overlay.base import ScheduledOverlay

if TYPE_CHECKING:
    import pandas as pd

TABLE = Path(__file__).with_name("prediction_errors.csv")
USUAL = "usual"
SHARED = "shared"
DOUBTED = "doubted"
FAST = "fast"
_FAST_BPS = 1e9


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Deviations of simulated rounds from exact ones, as shares.

    median     half of the measured points deviate by at most this
    within_95  95 % of the points deviate by at most this
    points     number of measured points
    """

    median: float
    within_95: float
    points: int
    source: str

    def interval(self, predicted: float) -> tuple[float, float]:
        """Return the interval in which the exact value lies for 95 % of such predictions."""
        return predicted / (1 + self.within_95), predicted / (1 - self.within_95)


@cache
def measured() -> dict[tuple[str, str, str], PredictionError]:
    """Return the table, by network model, congestion control and regime."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {
            (row["network"], row["congestion_control"], row["regime"]): PredictionError(
                float(row["median"]), float(row["within_95"]), int(row["points"]), row["source"]
            )
            for row in csv.DictReader(file)
        }


def error_of(plan: Plan, doubted: bool = False, is_contested: bool = False) -> PredictionError | None:
    """Return the error of a simulated Plan's rounds; ``None`` if it is unknown, or the Plan is not simulated.

    doubted       whether the run has reported doubts about its own prediction
    is_contested  whether packets were dropped at a link that several connections share; see ``contested``
    """
    if plan.facilities.has_processes or plan.program is not None:
        return None
    network = "packets" if plan.simulation.by_packet else plan.simulation.network
    return measured().get((network, plan.transport.congestion_control, regime_of(plan, doubted, is_contested)))


def widest_error() -> PredictionError:
    """Return the measured error with the largest ``within_95``."""
    return max(measured().values(), key=lambda error: error.within_95)


def regime_of(plan: Plan, doubted: bool = False, is_contested: bool = False) -> str:
    """Return the regime of a Plan; the arguments are those of ``error_of``."""
    if any(link.rate_bps > _FAST_BPS for link in plan.network.links):
        return FAST
    if doubted:
        return DOUBTED
    overlays = [OVERLAYS[choice.kind] for choice in (plan.technique.overlay_tier1, plan.technique.overlay_tier2)]
    decides_by_times = any(issubclass(overlay, ScheduledOverlay) or overlay.adapts for overlay in overlays)
    return SHARED if is_contested or decides_by_times or _share_queues(plan) else USUAL


def _share_queues(plan: Plan) -> bool:
    """Return whether several workers of a data centre send across the WAN themselves."""
    sites = {node.name: node.data_center for node in plan.nodes}
    senders = Counter(
        worker.data_center
        for worker in plan.training_workers
        if not worker.parents or any(sites[parent] != worker.data_center for parent in worker.parents)
    )
    return max(senders.values(), default=0) > 1


def contested_links(plan: Plan, frames: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the links at which a simulation by packets dropped packets of several connections, from its tables."""
    if plan.facilities.has_processes or not plan.simulation.by_packet:
        return []
    links = frames["links"]
    transfers = frames["transfers"]
    tensors = transfers[(transfers["round"] >= 0) & (transfers["payload_bytes"] > 0)]
    pairs = tensors[["source", "target"]].drop_duplicates().itertuples(index=False, name=None)
    return contested(plan, sorted(links.loc[links["dropped_packets"] > 0, "link"].unique()), pairs)


def contested(plan: Plan, dropping: Collection[str], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the links that dropped packets and that several connections share: chance decides which of them loses.

    dropping  names of the links that dropped packets
    pairs     sender and receiver of each connection that carried tensors
    """
    sites = {node.name: node.data_center for node in plan.nodes}
    connections = Counter(
        link
        for source, target in pairs
        if dropping and sites[source] != sites[target]
        for link in plan.network.between(sites[source], sites[target])
    )
    return [link for link in dropping if connections[link] > 1]


def note_of_contest(links: Sequence[str]) -> str:
    """Return the note about ``contested`` links, of which there is at least one."""
    others = f" (and {len(links) - 1} more)" if len(links) > 1 else ""
    return (
        f"link {links[0]}{others}: packets of several connections were dropped at the same link; chance decides which "
        "connection waits for repairs, so a run is one draw: compare means over several seeds"
    )
