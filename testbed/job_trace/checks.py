"""Refuses a job's trace that could not be played to its end. Messages name file, rank and node."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from testbed.errors import ScenarioError
from testbed.job_trace.model import COLLECTIVE, COMPUTE, MEMORY, RECEIVE, SEND, JobTrace, RankTrace, Rates, TraceNode
from testbed.job_trace.order import in_order, operations_of

MOST_BYTES = 10**12  # limit for the size of a node, and for the bytes that a rank sends in a round
MOST_S = 30 * 86_400.0  # limit for the duration of a node; no run lasts longer
_Channel = tuple[int, int, int]  # sender, receiver, tag


def check(job: JobTrace, rates: Rates) -> None:
    """Raise ``ScenarioError`` for the first kind of problem that is found, with up to five problems of this kind."""
    for problems in (
        _amounts(job, rates),
        _ranks(job),
        _messages(job),
        _collectives(job),
        _durations(job, rates),
        _circle(job),
    ):
        found = [problem for _, problem in zip(range(5), problems, strict=False)]
        if found:
            raise ScenarioError(found)


def _amounts(job: JobTrace, rates: Rates) -> Iterator[str]:
    """Sizes, durations and numbers of operations must not be negative, NaN, or impossibly large."""
    for trace in job.ranks:
        for node in trace.nodes:
            if not 0 <= node.size_bytes <= MOST_BYTES:
                told = f"has a size of {node.size_bytes} bytes, which is outside 0 to {MOST_BYTES}"
            elif not 0 <= node.duration_s <= MOST_S:
                told = f"takes {node.duration_s:g} s, which is outside 0 to {MOST_S:g}"
            elif not 0 <= node.operations < math.inf:
                told = f"has {node.operations:g} operations, which no device can compute"
            elif rates.duration_s(node) > MOST_S:
                told = f"takes {rates.duration_s(node):g} s at the rates of workload, which is above {MOST_S:g}"
            else:
                continue
            yield f"{trace.place(node)}: {told}; write the trace again"


def _ranks(job: JobTrace) -> Iterator[str]:
    """The peer of every message must be another rank of the job. Every group must be known and include the rank."""
    size = len(job.ranks)
    for trace in job.ranks:
        for node in trace.nodes:
            if node.kind in (SEND, RECEIVE) and (not 0 <= node.peer < size or node.peer == trace.rank):
                yield f"{trace.place(node)}: its peer is rank {node.peer}, but the others are 0 to {size - 1}"
            if node.kind != COLLECTIVE:
                continue
            if node.group and node.group not in job.groups and (len(job.groups) or node.group != "0"):
                cure = 'write the file of the groups as workload.groups: {"NAME": [ranks]}'
                yield f"{trace.place(node)}: nothing says who belongs to its process group '{node.group}'; {cure}"
                continue
            members = job.members(node.group)
            if trace.rank not in members:
                yield f"{trace.place(node)}: its group '{node.group}' has ranks {list(members)}, without this one"
            if node.peer >= 0 and node.peer not in members:
                yield f"{trace.place(node)}: its root, rank {node.peer}, is not in its group {list(members)}"


def _messages(job: JobTrace) -> Iterator[str]:
    """For each tag between two ranks, as many messages must be sent as received, with the same sizes."""
    sent: dict[_Channel, list[TraceNode]] = defaultdict(list)
    received: dict[_Channel, list[TraceNode]] = defaultdict(list)
    for trace in job.ranks:
        for node in trace.nodes:
            if node.kind == SEND:
                sent[trace.rank, node.peer, node.tag].append(node)
            elif node.kind == RECEIVE:
                received[node.peer, trace.rank, node.tag].append(node)
    for channel in sorted({*sent, *received}):
        source, target, tag = channel
        sends = sent[channel]
        receives = received[channel]
        told = (
            f"rank {source} sends {len(sends)} messages of tag {tag} to rank {target}, which receives {len(receives)}"
        )
        if len(sends) < len(receives):
            yield f"{job.ranks[target].place(receives[len(sends)])}: is never sent; {told}"
        elif len(sends) > len(receives):
            yield f"{job.ranks[source].place(sends[len(receives)])}: is never received; {told}"
        for send, receive in zip(sends, receives, strict=False):
            if send.size_bytes != receive.size_bytes:
                other = f"node {send.id} of rank {source} sends {send.size_bytes} bytes"
                yield f"{job.ranks[target].place(receive)}: receives {receive.size_bytes} bytes, but {other}"


def _collectives(job: JobTrace) -> Iterator[str]:
    """The members of a group must make the same operations in the same order."""
    by_group: dict[str, list[tuple[RankTrace, list[TraceNode]]]] = defaultdict(list)
    for trace in job.ranks:
        for group, nodes in operations_of(trace).items():
            by_group[group].append((trace, nodes))
    for group, found in by_group.items():
        present = {trace.rank for trace, _ in found}
        (first, nodes), *others = found
        absent = [rank for rank in job.members(group) if rank not in present]
        if absent:
            yield f"{first.place(nodes[0])}: rank {absent[0]} of its group takes part in none of its operations"
        for trace, theirs in others:
            for mine, other in zip(nodes, theirs, strict=False):
                if _about(mine) != _about(other):
                    told = f"is {_told(other)}, and {_told(mine)} at rank {first.rank}, node {mine.id}"
                    yield f"{trace.place(other)}: {told}: members of a group make the same operations in one order"
                    break
            else:
                if len(nodes) != len(theirs):
                    more, last = (first, nodes) if len(nodes) > len(theirs) else (trace, theirs)
                    fewer = trace if more is first else first
                    node = last[min(len(nodes), len(theirs))]
                    yield f"{more.place(node)}: rank {fewer.rank} of its group has no operation after the one before"


def _about(node: TraceNode) -> tuple[str, int, int]:
    return node.operation, node.size_bytes, node.peer


def _told(node: TraceNode) -> str:
    root = f" of root {node.peer}" if node.peer >= 0 else ""
    return f"{node.operation}{root} of {node.size_bytes} bytes"


def _durations(job: JobTrace, rates: Rates) -> Iterator[str]:
    for trace in job.ranks:
        for node in trace.nodes:
            if node.kind not in (COMPUTE, MEMORY) or node.duration_s:
                continue
            if node.operations and not rates.operations_per_s:
                problem = f"states {node.operations:g} operations and no duration"
                yield f"{trace.place(node)}: {problem}; write workload.flops, of the device"
            elif node.kind == MEMORY and node.size_bytes and not rates.memory_bytes_per_s:
                problem = f"moves {node.size_bytes} bytes and states no duration"
                yield f"{trace.place(node)}: {problem}; write workload.memory_rate, of the device"


def _circle(job: JobTrace) -> Iterator[str]:
    """Nodes must not wait for themselves: following the whole job, messages and collectives included, reaches all."""
    left = in_order(job)
    if left:
        trace, node = left[0]
        names = ", ".join(f"node {each.id} of rank {of.rank}" for of, each in left[1:4])
        around = f" (so do {names})" if names else ""
        yield f"{trace.place(node)}: waits, by a circle of dependencies, for its own end{around}"
