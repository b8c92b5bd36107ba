"""Exports a run as the execution trace of a job, for other simulators, or to be played on another network.

The ranks are the nodes of the run except the scheduler, in the order of its Plan. The nodes of the trace are the work
and the messages of training rounds; a collective operation consists of its single messages. Dependencies are not
recorded, so they are inferred: whatever a node began waits for all work that ended, and all messages that arrived,
there since the node last began something. On the run's own network, the trace takes as long as the run. On another
network, some work may wait for more than it would have to.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pandas as pd

from analysis.load import StoredRun, distinct_names
from testbed.costs import CODING
from testbed.errors import ScenarioError
from testbed.job_trace.model import COMPUTE, RECEIVE, SEND, JobTrace, RankTrace, TraceNode
from testbed.job_trace.writing import write_chakra, write_goal

RESOLUTION_S = 2e-6  # resolution of the times of events, which are rounded
_ARRIVAL = 0
_WORK = 1
_SENDING = 2


def job_of(run: StoredRun, round_: int | None = None) -> JobTrace:
    """Return the trace of all training rounds, or of round ``round_``.

    Raise ``ScenarioError`` if the run's events do not record the nodes' work, or there is no such round.
    """
    if run.program is not None or not run.logs_work:
        problem = "what its nodes did is not known: it ran a program, or its logs are brief"
        raise ScenarioError(f"{run.path}: {problem}; run it again with simulation.events: full")
    rounds = _of_rounds(run.tables["rounds"], round_)
    if rounds.empty:
        raise ScenarioError(f"{run.path}: has no round {round_ or 0}; they are counted from 0")
    names = [node["name"] for node in run.plan["nodes"] if node["role"] != "scheduler"]
    started = rounds.groupby("node")["t0_s"].min()
    nodes = [_Node(float(started.get(name, started.min()))) for name in names]
    rank_of = {name: rank for rank, name in enumerate(names)}
    _note_work(_of_rounds(run.tables["computes"], round_), nodes, rank_of)
    transfers = _of_rounds(run.tables["transfers"], round_)
    in_training = transfers["t0_s"] >= run.tables["rounds"]["t0_s"].min()  # earlier messages also have round 0
    _note_messages(transfers[in_training], nodes, rank_of)
    return JobTrace(tuple(RankTrace(rank, names[rank], node.traced()) for rank, node in enumerate(nodes)), {})


def _of_rounds(table: pd.DataFrame, round_: int | None) -> pd.DataFrame:
    return table[table["round"] >= 0] if round_ is None else table[table["round"] == round_]


def _note_work(table: pd.DataFrame, nodes: list[_Node], rank_of: dict[str, int]) -> None:
    for name, begin_s, end_s, work in table[["node", "t0_s", "t_s", "work"]].itertuples(index=False):
        if name in rank_of:
            node = TraceNode(-1, work, COMPUTE, duration_s=end_s - begin_s, on_host=work in CODING)
            nodes[rank_of[name]].begun.append((begin_s, _WORK, end_s, node))


def _note_messages(table: pd.DataFrame, nodes: list[_Node], rank_of: dict[str, int]) -> None:
    columns = ["source", "target", "t0_s", "t_s", "message", "payload_bytes", "header_bytes"]
    in_order = table.sort_values("t0_s", kind="stable")
    tags: dict[tuple[int, int], int] = defaultdict(int)
    for source, target, sent_s, arrived_s, kind, payload, header in in_order[columns].itertuples(index=False):
        if source not in rank_of or target not in rank_of or source == target:
            continue
        pair = rank_of[source], rank_of[target]
        size = int(payload) or int(header)
        tag = tags[pair]
        tags[pair] += 1
        sending = TraceNode(-1, kind, SEND, size_bytes=size, peer=pair[1], tag=tag)
        arrival = TraceNode(-1, kind, RECEIVE, size_bytes=size, peer=pair[0], tag=tag)
        nodes[pair[0]].begun.append((sent_s, _SENDING, sent_s, sending))
        nodes[pair[1]].begun.append((arrived_s, _ARRIVAL, arrived_s, arrival))


@dataclass
class _Node:
    """The activities of one node of the run: begin, order among equal begins, end, and the node of the trace."""

    started_s: float
    begun: list[tuple[float, int, float, TraceNode]] = field(default_factory=list)

    def traced(self) -> tuple[TraceNode, ...]:
        """Return the nodes of the trace, each after the nodes that it waits for."""
        found: list[TraceNode] = []
        running: list[tuple[float, int]] = []  # end and id of nodes that no other one waits for yet
        ended: list[tuple[float, int]] = []  # those that ended since the last begin; if none did, the earlier ones

        def add(node: TraceNode, after: tuple[int, ...]) -> int:
            id_ = len(found)
            found.append(msgspec.structs.replace(node, id=id_, after=after))
            return id_

        for begin_s, what, end_s, node in sorted(self.begun, key=lambda each: each[:2]):
            if what == _ARRIVAL:
                running.append((end_s, add(node, ())))
                continue
            newly = [each for each in running if each[0] <= begin_s + RESOLUTION_S]
            if newly:
                running = [each for each in running if each[0] > begin_s + RESOLUTION_S]
                ended = newly
            since_s = max((each[0] for each in ended), default=self.started_s)
            after = tuple(sorted(id_ for _, id_ in ended))
            pause_s = begin_s - since_s
            if pause_s > RESOLUTION_S:
                pause = TraceNode(-1, "pause", COMPUTE, duration_s=pause_s, on_host=True)
                after = (add(pause, after),)
            id_ = add(node, after)
            if what == _WORK:
                running.append((end_s, id_))
        return tuple(found) or (TraceNode(0, "idle", COMPUTE),)


def chakra(runs: list[StoredRun], out: Path, round_: int | None = None) -> list[Path]:
    """Write ``<out>/<run>/job.<rank>.et`` for each node of each run, in Chakra's format."""
    named = zip(runs, distinct_names(runs), strict=True)
    return [path for run, name in named for path in write_chakra(job_of(run, round_), out / name, "job")]


def goal(runs: list[StoredRun], out: Path, round_: int | None = None) -> list[Path]:
    """Write ``<out>/<run>.goal`` for each run, in the format of LogGOPSim and ATLAHS."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.goal" for name in distinct_names(runs)]
    for run, path in zip(runs, paths, strict=True):
        write_goal(job_of(run, round_), path)
    return paths
