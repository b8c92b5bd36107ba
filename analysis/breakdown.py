"""Where the time of a run went: compute, codecs, LAN, WAN and waiting, for every node.

**A worker's round** is the span from the ``round`` event's ``t0`` to its ``t``. Every instant of it belongs to exactly
one part, so the parts add up to the span:

* ``compute``: the worker computes, or its data are at a server that is computing (sum, optimizer);
* ``codec``: otherwise, the worker encodes or decodes, or its data are at a server that does;
* ``lan``, ``wan``: otherwise, its data are in transit between two nodes, from ``send`` to arrival;
* ``waiting``: the rest: its data are at a server, and wait for those of other workers or data centres.

"Its data" are the *critical key* of the round: the key whose value arrives last at the worker. From there, the path is
traced back to the server that made the value: each server sent a value because one had arrived there before (of the
same key if there is one, otherwise the latest). The way up consists of the pushes of the same keys, from the worker to
the server that makes the value:

    worker ─push→ local server … ─push→ global server … update … ─value→ local server ─value→ worker
           LAN               waiting  WAN              waiting       WAN              LAN

If an overlay relays, servers send ``merge`` instead of ``push``, and ``spread`` instead of ``value``: the ways up and
down then lead through other nodes. With DGT, a push counts as in transit while it waits for other pushes of its sender
to leave, as it would in a queue, and until the server accepts it with the ``block`` messages that have arrived by then.
If a restart repeats transfers, only those of the round's own attempt count.

**Without servers** (all-reduce, gossip) the path is a chain of messages between workers; see ``analysis.peers``. If the
workers of a data centre sum among themselves, and one of them pushes for all, such chains lead to this worker and back.

**In a pipeline**, a worker also waits within its step for activations and their gradients. A pause before a pass is LAN
or WAN time while the last message that arrived before the pass was in transit, and waiting until it was sent.

**A server**, or a replica of one, has no rounds of its own. While any worker is in a round, the server *computes*;
otherwise it encodes or decodes (*codec*); otherwise it has a *WAN* transfer in progress; otherwise a *LAN* transfer;
otherwise it *waits*.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from analysis.peers import STAGE_MESSAGES, WORKERS_WORK, Hop, PeerIndex, Segment, hops, index_peers, segments
from testbed.costs import CODING
from testbed.ids import data_center_of
from testbed.results.events import BLOCKS_AHEAD
from testbed.results.intervals import Intervals, union
from testbed.results.summary import absences

PARTS = ("compute", "codec", "lan", "wan", "waiting")
SERVERS = ("global_server", "replica", "server")  # roles, in the order of their rows
UPWARDS = ("push", "merge")
DOWNWARDS = ("value", "spread")
"""Messages with contributions (``UPWARDS``) and with values: direct, or relayed by an overlay."""
BLOCK = "block"  # part of a push; an event of several blocks ends when the server accepts the push, or the next one

# Of longer runs, ``per_node`` uses randomly chosen rounds: the mean of this many is exact enough, in two seconds.
MOST_ROWS = 10_000
LEAST_ROUNDS = 50

_NEVER = union([])
Frames = Mapping[str, pd.DataFrame]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Index:
    """Transfers of tensors by round and end point, and the times of each node's activities.

    computing  when a node computed
    serving    when it computed anything other than a training step
    coding     when its codecs worked and it did not compute
    queueing   when its pushes waited for their turn, and it neither computed nor encoded or decoded
    passing    by tier: when the activations that its next pass needed were in transit, and its codecs did not work
    """

    pushes: dict[tuple[str, int, int], list[Hop]]  # source, round, key; in order of arrival
    values: dict[tuple[str, int], list[Hop]]  # target, round; in order of arrival
    computing: dict[str, Intervals]
    serving: dict[str, Intervals]
    coding: dict[str, Intervals]
    queueing: dict[str, Intervals]
    passing: dict[str, dict[str, Intervals]]
    peers: PeerIndex
    pushers: dict[str, str]  # by data centre: the worker that pushes for all, if workers sum among themselves


def per_round(frames: Frames, chosen: Collection[int] | None = None) -> pd.DataFrame:
    """Return a row per worker and round: ``node, data_center, round, t0_s, t_s``, and ``<part>_s`` for each part.

    chosen  the rounds to split; ``None`` for all
    """
    rounds = frames["rounds"]
    transfers = frames["transfers"]
    tensors = transfers[transfers["message"].isin((*UPWARDS, BLOCK, *DOWNWARDS)) & (transfers["round"] >= 0)]
    if chosen is not None:
        rounds, tensors = (each[each["round"].isin(chosen)] for each in (rounds, tensors))
    index = _index(frames, tensors)
    names = ["node", "round", "t0_s", "t_s"]
    rounds = rounds.sort_values(["node", "round"], ignore_index=True)[names]
    parts = [_split(index, *row) for row in zip(*(rounds[name].tolist() for name in names), strict=True)]
    rounds.insert(1, "data_center", rounds["node"].map(data_center_of))
    return rounds.join(pd.DataFrame(parts, columns=[f"{part}_s" for part in PARTS], dtype=float))


def per_node(frames: Frames) -> pd.DataFrame:
    """Return one row per worker and server: ``node, data_center, role, rounds`` and the mean ``<part>_s`` per round.

    For a long run, the workers' means are those of randomly chosen rounds (``MOST_ROWS``).
    """
    columns = [f"{part}_s" for part in PARTS]
    workers = per_round(frames, _some(frames["rounds"])).groupby("node")[columns].mean()
    workers["rounds"] = frames["rounds"].groupby("node").size()
    workers["role"] = "worker"
    nodes = pd.concat([workers, _servers(frames)]) if len(workers) else workers
    nodes = nodes.rename_axis("node").reset_index()
    nodes.insert(1, "data_center", nodes["node"].map(data_center_of))
    return nodes[["node", "data_center", "role", "rounds", *columns]]


def _some(rounds: pd.DataFrame) -> list[int] | None:
    """Return the rounds to use for a mean; ``None`` for all."""
    numbers = rounds["round"].unique()
    most = max(LEAST_ROUNDS, len(numbers) * MOST_ROWS // max(1, len(rounds)))
    if len(numbers) <= most:
        return None
    return sorted(np.random.default_rng(0).choice(numbers, most, replace=False).tolist())


def in_plan_order(split: pd.DataFrame, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of ``per_node`` sorted by data centre as in the Plan, then by role: servers before workers."""
    sites = [site["name"] for site in plan["network"]["sites"]]
    roles = [*SERVERS, "worker"]
    ranks = {"data_center": sites.index, "role": roles.index, "node": str}
    return split.sort_values(list(ranks), key=lambda column: column.map(ranks[column.name]), ignore_index=True)


def critical_path(index: _Index, worker: str, round_: int, span: Span) -> tuple[list[Hop], list[Hop]]:
    """Return the pushes from the worker upwards, and the values back down to it, each in order of time.

    span  begin and end of the worker's round (s)
    """
    down: list[Hop] = []
    node = worker
    passed = set[str]()
    while node not in passed and (value := _value_before(index, node, round_, span, down[0] if down else None)):
        passed.add(node)
        down.insert(0, value)
        node = value.source
    taken_s = down[0].begin if down else math.inf
    return _way_up(index, worker, round_, (span, taken_s), {hop.target: hop for hop in down}), down


def _way_up(
    index: _Index, worker: str, round_: int, within: tuple[Span, float], values: Mapping[str, Hop]
) -> list[Hop]:
    """Return the pushes from the worker upwards, each followed by its last blocks.

    within  the span of the round, and the time at which the value made from the pushes was sent
    values  the values on the way down, by their target
    """
    up: list[Hop] = []
    span, taken_s = within
    node = worker
    key = -1
    passed = set[str]()
    while node not in passed:
        passed.add(node)
        value = values.get(node)
        key = value.key if value is not None else key  # a relay that is not on the way down forwards its sender's key
        pushed = _of_attempt(index.pushes.get((node, round_, key), []), span)
        blocks = [hop for hop in pushed if hop.message == BLOCK and hop.end <= taken_s]
        pushed = [hop for hop in pushed if hop.message != BLOCK]
        if pushed:
            up += [pushed[-1], *blocks[-1:]]
            node = pushed[-1].target
        elif value is not None:
            node = value.source
    return up


def _value_before(index: _Index, node: str, round_: int, span: Span, sent: Hop | None) -> Hop | None:
    """Return the value that made ``node`` send ``sent``; without ``sent``, the last value that arrived in the round."""
    arrived = _of_attempt(index.values.get((node, round_), []), span)
    if sent is None:
        return arrived[-1] if arrived else None
    in_time = [hop for hop in arrived if hop.end <= sent.begin]
    # in real time, ``begin`` is an estimate that may be slightly too early
    same_key = [hop for hop in arrived if hop.key == sent.key and hop.end <= sent.end]
    candidates = same_key or in_time
    return candidates[-1] if candidates else None


def _of_attempt(found: list[Hop], span: Span) -> list[Hop]:
    """Return the transfers that overlap a round's span; if there are none, those that began after it."""
    begin, end = span
    return [hop for hop in found if hop.end > begin and hop.begin < end] or [hop for hop in found if hop.begin >= end]


def _split(index: _Index, worker: str, round_: int, begin: float, end: float) -> tuple[float, ...]:
    own = _during(index.computing.get(worker), begin, end)
    coding = _during(index.coding.get(worker), begin, end)
    seconds = defaultdict(float, compute=sum(b - a for a, b in own), codec=sum(b - a for a, b in coding))
    own += coding
    for tier, when in index.passing.get(worker, {}).items():
        pieces = _during(when, begin, end)
        seconds[tier] += sum(b - a for a, b in pieces)
        own += pieces
    cursor = begin
    for part, at, a, b in _path(index, worker, round_, begin, end):
        a, b = max(a, cursor), min(b, end)  # noqa: PLW2901 - every instant counts once
        if b <= a:
            continue
        cursor = b
        done = {part: [(a, b)]}
        if part == "waiting":
            spent = {"compute": index.serving, "codec": index.coding, "wan": index.queueing}
            done = {name: _during(when.get(at), a, b) for name, when in spent.items()}
        for name, pieces in done.items():
            seconds[name] += sum(y - x - _overlap(own, x, y) for x, y in pieces)
    busy = sum(seconds.values())
    seconds["waiting"] = max(0.0, round(end - begin - busy, 9))  # clocks have microseconds; less is rounding
    return tuple(seconds[part] for part in PARTS)


def critical_hops(frames: Frames, chosen: Collection[int]) -> pd.DataFrame:
    """Return the transfers that determined the length of the chosen rounds: ``round, source, target, t0_s, t_s``.

    In each round, they are those on the path of the worker whose data waited least, as all others waited for it.
    """
    transfers = frames["transfers"]
    tensors = transfers[transfers["message"].isin((*UPWARDS, BLOCK, *DOWNWARDS)) & transfers["round"].isin(chosen)]
    index = _index(frames, tensors)
    rounds = frames["rounds"]
    spans = rounds.loc[rounds["round"].isin(chosen), ["node", "round", "t0_s", "t_s"]]
    waiting = PARTS.index("waiting")
    waited = [_split(index, *span)[waiting] for span in zip(*(spans[name].tolist() for name in spans), strict=True)]
    last = spans.loc[spans.assign(waited_s=waited).groupby("round")["waited_s"].idxmin()]
    rows = []
    for worker, round_, begin, end in zip(*(last[name].tolist() for name in last), strict=True):
        path = _path(index, worker, round_, begin, end)
        at = worker
        for place, (_, node, begin_s, end_s) in enumerate(path):
            if node:
                at = node
                continue
            to = path[place + 1][1] if place + 1 < len(path) else worker
            rows.append((round_, at, to or worker, begin_s, end_s))
            at = to or worker
    return pd.DataFrame(rows, columns=["round", "source", "target", "t0_s", "t_s"])


def _path(index: _Index, worker: str, round_: int, begin: float, end: float) -> list[Segment]:
    """Return the path of the worker's data, in order of time."""
    pusher = index.pushers.get(data_center_of(worker), "")
    if index.peers and not pusher:
        return segments(index.peers, worker, round_, begin, end)
    up, down = critical_path(index, pusher or worker, round_, (begin, end))
    path = list(_segments(up, down))
    if not index.peers or not up:
        return path
    before = segments(index.peers, pusher, round_, begin, up[0].begin)
    return [*before, *path, *segments(index.peers, worker, round_, down[-1].end, end)]


def _segments(up: list[Hop], down: list[Hop]) -> Iterator[Segment]:
    """Yield the path as segments: each hop, and between two hops the time at the node that the data reached."""
    path = [*up, *down]
    for hop, following in zip_longest(path, path[1:]):
        yield hop.tier, "", hop.begin, hop.end
        if following is not None:
            yield "waiting", hop.target, hop.end, following.begin


def _during(computing: Intervals | None, begin: float, end: float) -> list[tuple[float, float]]:
    if computing is None:
        return []
    edges = computing.edges
    inside = edges[bisect_left(edges[:, 1], begin) : bisect_left(edges[:, 0], end)].clip(begin, end)
    return [(a, b) for a, b in inside.tolist() if b > a]


def _overlap(pieces: list[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(b, end) - max(a, begin)) for a, b in pieces)


def _index(frames: Frames, tensors: pd.DataFrame) -> _Index:
    pushes = defaultdict(list)
    values = defaultdict(list)
    for round_, hop in hops(tensors):
        if hop.message not in DOWNWARDS:
            pushes[hop.source, round_, hop.key].append(hop)
        else:
            values[hop.target, round_].append(hop)
    computing, coding = _computing_and_coding(frames["computes"])
    computes = frames["computes"]
    serving = _spans(computes[~computes["work"].isin((*WORKERS_WORK, *CODING))])
    peers = index_peers(frames["transfers"], computes)
    sources = {node for node, _, _ in pushes} & set(frames["rounds"]["node"]) if peers else set()
    pushers = {data_center_of(node): node for node in sorted(sources)}
    waits = frames["waits"]
    ahead = _spans(waits[waits["waiting_for"].str.startswith(BLOCKS_AHEAD, na=False)])
    queueing = {
        node: each.minus(computing.get(node, _NEVER)).minus(coding.get(node, _NEVER)) for node, each in ahead.items()
    }
    passing = _passing(frames["transfers"], computing, coding)
    return _Index(dict(pushes), dict(values), computing, serving, coding, queueing, passing, peers, pushers)


def _passing(
    transfers: pd.DataFrame, computing: Mapping[str, Intervals], coding: Mapping[str, Intervals]
) -> dict[str, dict[str, Intervals]]:
    """Return, by worker and tier, when the activations for which it paused between two passes were in transit."""
    found: dict[str, dict[str, Intervals]] = {}
    for node, theirs in transfers[transfers["message"].isin(STAGE_MESSAGES)].groupby("target", observed=True):
        ordered = theirs.sort_values("t_s")
        ends = ordered["t_s"].to_numpy()
        passes = computing.get(str(node), _NEVER).edges
        begins = passes[:, 0]
        paused_from = np.append(-math.inf, passes[:, 1])[:-1]
        last = np.searchsorted(ends, begins, side="right") - 1
        awaited = (last >= 0) & (ends[last] > paused_from)
        needed = ordered.iloc[last[awaited]]
        edges = np.column_stack((np.maximum(needed["t0_s"], paused_from[awaited]), needed["t_s"]))
        tiers = needed["tier"].to_numpy()
        busy = coding.get(str(node), _NEVER)
        found[str(node)] = {tier: union(edges[tiers == tier]).minus(busy) for tier in sorted(set(tiers))}
    return found


def _computing_and_coding(computes: pd.DataFrame) -> tuple[dict[str, Intervals], dict[str, Intervals]]:
    """Return when each node computed, and when its codecs worked while it did not compute."""
    by_codec = computes["work"].isin(CODING)
    computing = _spans(computes[~by_codec])
    coding = _spans(computes[by_codec])
    return computing, {node: each.minus(computing.get(node, _NEVER)) for node, each in coding.items()}


def _spans(table: pd.DataFrame) -> dict[str, Intervals]:
    edges = table[["t0_s", "t_s"]].to_numpy()
    return {str(node): union(edges[rows]) for node, rows in table.groupby("node", observed=True).indices.items()}


def _servers(frames: Frames) -> pd.DataFrame:
    """Return the rows of ``per_node`` for servers. The mean of a server that was lost is over the rounds it took part
    in."""
    rounds = frames["rounds"]
    nodes = frames["nodes"]
    training = union(rounds[["t0_s", "t_s"]].to_numpy())
    most = int(rounds.groupby("node").size().max())
    absent = absences(frames["faults"], float(rounds["t0_s"].min()), float(rounds["t_s"].max()))
    during = _During(frames, ("source", "target"))
    servers = nodes[nodes["role"].isin(SERVERS)].drop_duplicates("node", keep="last")
    rows = {}
    for server, role in zip(servers["node"].tolist(), servers["role"].tolist(), strict=True):
        present = training.minus(union(absent.get(server, [])))
        count = round(most * present.total() / training.total())
        means = [seconds / max(1, count) for seconds in during.parts_s(server, present)]
        rows[server] = (*means, count, role)
    columns = [*(f"{part}_s" for part in PARTS), "rounds", "role"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def per_rank(frames: Frames) -> pd.DataFrame:
    """Return the table of ``per_node`` for a traced job, whose ranks are workers with arbitrary messages.

    While a rank is in a round it computes; otherwise it encodes or decodes; otherwise a message to it is in transit
    over the WAN, or in a LAN; otherwise it waits for other ranks.
    """
    during = _During(frames, ("target",))
    rows = {}
    for node, rounds in frames["rounds"].groupby("node"):
        within = union(rounds[["t0_s", "t_s"]].to_numpy())
        means = [seconds / len(rounds) for seconds in during.parts_s(str(node), within)]
        rows[node] = (data_center_of(str(node)), "worker", len(rounds), *means)
    columns = ["data_center", "role", "rounds", *(f"{part}_s" for part in PARTS)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("node").reset_index()


class _During:
    """Splits times of a node into parts. ``ends``: a node counts transfers that have it at one of these ends."""

    def __init__(self, frames: Frames, ends: tuple[str, ...]) -> None:
        self._computing, self._coding = _computing_and_coding(frames["computes"])
        self._moving = _moving(frames["transfers"], ends)

    def parts_s(self, node: str, within: Intervals) -> list[float]:
        """Return the seconds of each part within ``within``: compute, codec, LAN, WAN, waiting.

        Time with several activities counts once: as computing, codec, WAN, LAN, in this order of precedence.
        """
        compute = self._computing.get(node, _NEVER).intersection(within)
        codec = self._coding.get(node, _NEVER).intersection(within)
        local = union(np.concatenate((compute.edges, codec.edges)))
        wan = self._moving.get((node, "wan"), _NEVER).intersection(within).minus(local)
        lan = self._moving.get((node, "lan"), _NEVER).intersection(within).minus(local).minus(wan)
        busy = [each.total() for each in (compute, codec, lan, wan)]
        return [*busy, within.total() - sum(busy)]


def _moving(transfers: pd.DataFrame, ends: tuple[str, ...]) -> dict[tuple[str, str], Intervals]:
    """Return when transfers with a node at one of ``ends`` were in transit, by node and tier."""
    names = ["node", "tier", "t0_s", "t_s"]
    found = pd.concat([transfers[[end, *names[1:]]].set_axis(names, axis=1) for end in ends])
    edges = found[["t0_s", "t_s"]].to_numpy()
    groups = found.groupby(["node", "tier"], observed=True).indices
    return {(str(node), str(tier)): union(edges[rows]) for (node, tier), rows in groups.items()}
