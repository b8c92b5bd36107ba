"""Where the time of a round went without servers: the chain of messages that led to a worker's last one.

All-reduce and gossip have no server at which data could wait. A worker waits for a chain of messages: for the last one
that arrived, whose sender had itself waited for a message, or for the end of its own step. The chain is traced
backwards. A transfer is LAN or WAN time, the work of a node between two transfers is computing, and the time before the
step with which the chain begins is waiting for that step.

The single messages of torch.distributed are not recorded. Each of its sums counts as one hop, which begins when the
last worker (below servers, the last one of the data centre) has called it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from testbed.costs import USER_CODE
from testbed.ids import data_center_of
from testbed.paradigms import PARADIGMS

_SHIPPED = PARADIGMS.shipped.values()
_OF_OLDER_RUNS = ("mpi",)  # messages of a paradigm that no longer exists
STAGE_MESSAGES = tuple(kind for paradigm in _SHIPPED if paradigm.cuts_models for kind in paradigm.messages)
"""Messages that the stages of a pipeline send each other within a step."""
_OF_EXCHANGES = (kind for paradigm in _SHIPPED if not paradigm.cuts_models for kind in paradigm.messages)
PEER_MESSAGES = (*_OF_EXCHANGES, *_OF_OLDER_RUNS)
WORKERS_WORK = ("step", USER_CODE)
"""``Work.kind`` of training steps; a worker does all other work for others."""
_OF_LIBRARIES = (
    *(kind for paradigm in _SHIPPED if paradigm.library for kind in paradigm.messages),
    *_OF_OLDER_RUNS,
)
MODELS = tuple(kind for paradigm in _SHIPPED if not paradigm.global_sum for kind in paradigm.messages)
ANSWER = 1  # key of the answer to an offer (AD-PSGD)

Segment = tuple[str, str, float, float]
"""The part of the time, the node that holds the data (empty while they are in transit), begin and end (s)."""


class Hop(NamedTuple):
    """One transfer between two nodes."""

    begin: float
    end: float
    source: str
    target: str
    key: int
    tier: str
    message: str


@dataclass(frozen=True, slots=True)
class PeerIndex:
    """Transfers by target and round, in order of arrival, and the times (s) at which each node's steps ended."""

    arrivals: dict[tuple[str, int], list[Hop]]
    steps: dict[str, list[float]]

    def __bool__(self) -> bool:
        return bool(self.arrivals)


def hops(transfers: pd.DataFrame) -> Iterator[tuple[int, Hop]]:
    """Yield each transfer with its round, in order of arrival."""
    ordered = transfers.sort_values("t_s")
    columns = ["round", "t0_s", "t_s", "source", "target", "key", "tier", "message"]
    for round_, *hop in zip(*(ordered[name].tolist() for name in columns), strict=True):
        yield round_, Hop(*hop)


def index_peers(transfers: pd.DataFrame, computes: pd.DataFrame) -> PeerIndex:
    """Index the tables of a run; the index is empty if no worker sent anything to another."""
    moved = transfers[transfers["message"].isin(PEER_MESSAGES) & (transfers["round"] >= 0)]
    below_servers = bool((transfers["message"] == "push").any())
    arrivals = defaultdict(list)
    for round_, hop in hops(_as_one_hop(moved[moved["payload_bytes"] > 0], below_servers)):
        arrivals[hop.target, round_].append(hop)
    steps = computes[computes["work"].isin(WORKERS_WORK)].sort_values("t_s")
    return PeerIndex(dict(arrivals), {str(node): group["t_s"].tolist() for node, group in steps.groupby("node")})


def _as_one_hop(moved: pd.DataFrame, below_servers: bool) -> pd.DataFrame:
    """Make all messages of a library's sum begin with the last worker's call, and have its farthest tier.

    below_servers  each data centre has sums of its own
    """
    theirs = moved["message"].isin(_OF_LIBRARIES)
    if not theirs.any():
        return moved
    sites = moved["target"].astype(str).map(data_center_of if below_servers else lambda target: "")
    sums = moved[theirs].groupby(["round", "key", sites[theirs]])
    # the maximum of the texts "lan" and "wan" is "wan"
    begin_s = sums["t0_s"].transform("max")
    tier = sums["tier"].transform("max")
    return moved.assign(t0_s=begin_s.combine_first(moved["t0_s"]), tier=tier.combine_first(moved["tier"]))


def segments(index: PeerIndex, worker: str, round_: int, begin: float, end: float) -> list[Segment]:
    """Return the chain that ends at ``worker`` at ``end`` (s), in order of time.

    Time at a node is the part ``waiting``, even if the node computes. The first segment may begin before ``begin``.
    """
    return list(_back(index, worker, round_, begin, end))[::-1]


def _back(index: PeerIndex, node: str, round_: int, begin: float, cursor: float) -> Iterator[Segment]:
    arrived = index.arrivals.get((node, round_), [])
    # a round ends with the answer to an offer; offers of others that arrive meanwhile do not delay it
    answers = [hop for hop in arrived if hop.key == ANSWER and hop.message in MODELS]
    hop = _last(answers, cursor) or _last(arrived, cursor)
    while hop is not None and hop.end > begin and not _stepped(index, node, hop.end, cursor):
        yield "waiting", node, hop.end, cursor
        yield hop.tier, "", hop.begin, hop.end
        if hop.begin >= cursor:
            return  # the chain would not move back in time: clocks have microseconds
        node = hop.source
        cursor = hop.begin
        hop = _last(index.arrivals.get((node, round_), []), cursor)


def _last(arrived: list[Hop], cursor: float) -> Hop | None:
    place = bisect_right(arrived, cursor, key=lambda hop: hop.end)
    return arrived[place - 1] if place else None


def _stepped(index: PeerIndex, node: str, after: float, until: float) -> bool:
    """Return whether a step of ``node`` ended between two times: its next message then waited for this step."""
    ends = index.steps.get(node, [])
    place = bisect_right(ends, until)
    return bool(place) and ends[place - 1] > after
