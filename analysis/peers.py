"""Where the time of a round went without servers: the way back from a worker's last message to what set it off.

All-reduce and gossip have no server at which data could wait. What a worker waits for is a chain: the message that
arrived last at it, sent by a node when that had received one itself, or had computed its own step. Walking back along
this chain, time on the way is LAN or WAN, sums of the nodes that data lie at are computing, and all before the step of
another worker that the chain begins with is waiting for it.

torch.distributed's messages are not seen one by one: its sum is one hop, from when the last worker has called it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.policy.gossip import ALGORITHMS

if TYPE_CHECKING:
    import pandas as pd

OURS = ("collective", "gossip")
LIBRARIES = ("gloo", "nccl", "mpi")
ANSWER = 1  # key of what answers an offer (AD-PSGD)

Segment = tuple[str, str, float, float]  # part, node, begin, end


class PeerHop(NamedTuple):
    """One transfer between two workers."""

    begin: float
    end: float
    source: str
    key: int
    tier: str
    message: str


@dataclass(frozen=True, slots=True)
class PeerIndex:
    """Transfers by target and round, in order of arrival, and when each node's steps ended."""

    arrivals: dict[tuple[str, int], list[PeerHop]]
    steps: dict[str, list[float]]

    def __bool__(self) -> bool:
        return bool(self.arrivals)


def index_peers(transfers: pd.DataFrame, computes: pd.DataFrame) -> PeerIndex:
    """From the tables of a run; empty when no worker sent anything to another."""
    moved = transfers[transfers["message"].isin(OURS + LIBRARIES) & (transfers["round"] >= 0)]
    moved = _as_one_hop(moved[moved["payload_bytes"] > 0]).sort_values("t_s")
    arrivals = defaultdict(list)
    columns = ["target", "round", "t0_s", "t_s", "source", "key", "tier", "message"]
    for target, round_, *hop in zip(*(moved[name].tolist() for name in columns), strict=True):
        arrivals[target, round_].append(PeerHop(*hop))
    steps = computes[computes["work"].isin(("step", "script"))].sort_values("t_s")
    return PeerIndex(dict(arrivals), {str(node): group["t_s"].tolist() for node, group in steps.groupby("node")})


def _as_one_hop(moved: pd.DataFrame) -> pd.DataFrame:
    """A library's sum begins when the last worker calls it, and is as far as its farthest message."""
    theirs = moved["message"].isin(LIBRARIES)
    if not theirs.any():
        return moved
    sums = moved[theirs].groupby(["round", "key"])
    begin_s, tier = sums["t0_s"].transform("max"), sums["tier"].transform("max")  # "wan" comes after "lan"
    return moved.assign(t0_s=begin_s.combine_first(moved["t0_s"]), tier=tier.combine_first(moved["tier"]))


def segments(index: PeerIndex, worker: str, round_: int, begin: float, end: float) -> list[Segment]:
    """The chain that ends at ``worker`` at ``end``, in the order of time. At a node: part ``waiting``."""
    return list(_back(index, worker, round_, begin, end))[::-1]


def _back(index: PeerIndex, node: str, round_: int, begin: float, cursor: float) -> Iterator[Segment]:
    hop = _last_answer(index, node, round_, cursor)
    while hop is not None and hop.end > begin and not _stepped(index, node, hop.end, cursor):
        yield "waiting", node, hop.end, cursor
        yield hop.tier, "", hop.begin, hop.end
        if hop.begin >= cursor:
            return  # no time has passed: clocks have microseconds
        node, cursor = hop.source, hop.begin
        hop = _last(index.arrivals.get((node, round_), []), cursor)


def _last(hops: list[PeerHop], cursor: float) -> PeerHop | None:
    """The last that had arrived by then."""
    place = bisect_right(hops, cursor, key=lambda hop: hop.end)
    return hops[place - 1] if place else None


def _last_answer(index: PeerIndex, node: str, round_: int, cursor: float) -> PeerHop | None:
    """What a worker ends its round with; others' offers that come meanwhile hold it up by nothing."""
    hops = index.arrivals.get((node, round_), [])
    return _last([hop for hop in hops if hop.key == ANSWER and hop.message == "gossip"], cursor) or _last(hops, cursor)


def _stepped(index: PeerIndex, node: str, after: float, until: float) -> bool:
    """Whether a step of ``node`` ended in between: then that is what its next message waited for."""
    ends = index.steps.get(node, [])
    place = bisect_right(ends, until)
    return bool(place) and ends[place - 1] > after


def waits(frames: Mapping[str, pd.DataFrame], plan: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float]]:
    """(where, waiter, awaited, seconds) of every round: who was last with what a worker needed, and how long it lasted.

    All-reduce: whose step ended last. Synchronous gossip: whose model came last, of the neighbours'. AD-PSGD waits for
    no other worker's step.
    """
    paradigm = plan["technique"]["paradigm"]
    computes = frames["computes"]
    ends = computes[computes["work"] == "step"].groupby(["round", "node"])["t_s"].max()
    if paradigm["kind"] == "gossip":
        if not ALGORITHMS[paradigm["options"]["algorithm"]].pairwise:
            yield from _for_neighbours(frames["transfers"], ends)
        return
    for _, of_round in ends.groupby(level="round"):
        rows = of_round.reset_index()
        nodes = dict(zip(rows["node"].tolist(), rows["t_s"].tolist(), strict=True))
        last = max(nodes, key=nodes.__getitem__)
        yield from (("all-reduce", node, last, nodes[last] - end_s) for node, end_s in nodes.items() if node != last)


def _for_neighbours(transfers: pd.DataFrame, ends: pd.Series) -> Iterator[tuple[str, str, str, float]]:
    models = transfers[(transfers["message"] == "gossip") & (transfers["payload_bytes"] > 0)]
    last = models.loc[models.groupby(["round", "target"])["t_s"].idxmax()]
    for round_, target, source, came_s in zip(*(last[n].tolist() for n in ("round", "target", "source", "t_s")),
                                              strict=True):  # fmt: skip
        if (round_, target) in ends.index:
            yield "gossip", target, source, max(0.0, came_s - ends[round_, target])
