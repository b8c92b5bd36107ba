"""Small traces of jobs, made by tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.job_trace.model import (
    ALL_REDUCE,
    COLLECTIVE,
    COMPUTE,
    MEMORY,
    RECEIVE,
    SEND,
    JobTrace,
    RankTrace,
    TraceNode,
)
from testbed.job_trace.writing import write_chakra


def compute(id_: int, duration_s: float, *after: int, **more: Any) -> TraceNode:
    return TraceNode(id_, f"compute {id_}", COMPUTE, after, duration_s, **more)


def memory(id_: int, size_bytes: int, *after: int) -> TraceNode:
    return TraceNode(id_, f"load {id_}", MEMORY, after, size_bytes=size_bytes)


def send(id_: int, peer: int, size_bytes: int, *after: int, tag: int = 0) -> TraceNode:
    return TraceNode(id_, f"send {id_}", SEND, after, size_bytes=size_bytes, peer=peer, tag=tag)


def receive(id_: int, peer: int, size_bytes: int, *after: int, tag: int = 0) -> TraceNode:
    return TraceNode(id_, f"receive {id_}", RECEIVE, after, size_bytes=size_bytes, peer=peer, tag=tag)


def collective(id_: int, size_bytes: int, *after: int, operation: str = ALL_REDUCE, **more: Any) -> TraceNode:
    return TraceNode(id_, operation, COLLECTIVE, after, size_bytes=size_bytes, operation=operation, **more)


def job(*ranks: list[TraceNode], groups: dict[str, tuple[int, ...]] | None = None) -> JobTrace:
    traces = (RankTrace(rank, f"job.{rank}", tuple(nodes)) for rank, nodes in enumerate(ranks))
    return JobTrace(tuple(traces), groups or {})


def written(folder: Path, *ranks: list[TraceNode], groups: dict[str, tuple[int, ...]] | None = None) -> Path:
    """Write a job as JSON, which needs no protobuf. Return what a scenario names."""
    write_chakra(job(*ranks, groups=groups), folder, "job", as_json=True)
    return folder / "job"
