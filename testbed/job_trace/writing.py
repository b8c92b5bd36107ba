"""Writes a job's trace for other simulators, in Chakra's format (schema 0.0.4) or in GOAL.

GOAL (Hoefler, Siebert and Lumsdaine, ICPP 2009) is read by LogGOPSim and ATLAHS. It states computations in nanoseconds
and messages in bytes, and has no collective operations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.job_trace import schema
from testbed.job_trace.model import (
    COLLECTIVE,
    COMPUTE,
    MEMORY,
    NOTHING,
    RECEIVE,
    SEND,
    JobTrace,
    RankTrace,
    TraceNode,
)

VERSION = "0.0.4"
_TYPES = {
    NOTHING: schema.METADATA_NODE,
    MEMORY: schema.MEM_LOAD_NODE,
    COMPUTE: schema.COMP_NODE,
    SEND: schema.COMM_SEND_NODE,
    RECEIVE: schema.COMM_RECV_NODE,
    COLLECTIVE: schema.COMM_COLL_NODE,
}


def write_chakra(job: JobTrace, folder: Path, name: str, *, as_json: bool = False) -> list[Path]:
    """Write ``name.RANK.et`` for each rank, or ``name.RANK.json``, and the process groups, if there are any.

    Return the files of the ranks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for trace in job.ranks:
        messages = [{"version": VERSION}, *(_message(node, trace) for node in trace.nodes)]
        path = folder / f"{name}.{trace.rank}.{'json' if as_json else 'et'}"
        if as_json:
            path.write_text("".join(f"{json.dumps(message)}\n" for message in messages), encoding="utf-8")
        else:
            path.write_bytes(b"".join(_encoded(messages)))
        written.append(path)
    if job.groups:
        groups = {group: list(job.members(group)) for group in job.groups}
        (folder / f"{name}.groups.json").write_text(json.dumps(groups, indent=1), encoding="utf-8")
    return written


def _message(node: TraceNode, trace: RankTrace) -> dict[str, Any]:
    """Return a node in protobuf's JSON mapping."""
    message: dict[str, Any] = {"id": str(node.id), "name": node.name, "type": schema.NODE_TYPES[_TYPES[node.kind]]}
    if node.after:
        message["dataDeps"] = [str(each) for each in node.after]
    if node.duration_s:
        message["durationMicros"] = str(round(node.duration_s * 1e6))
    message["attr"] = [{"name": name, key: value} for name, key, value in _attributes(node, trace)]
    return message


def _attributes(node: TraceNode, trace: RankTrace) -> Iterator[tuple[str, str, Any]]:
    yield "is_cpu_op", "boolVal", node.on_host
    if node.operations:
        yield "num_ops", "int64Val", str(round(node.operations))
    if node.kind in (COMPUTE, MEMORY) and node.size_bytes:
        yield "tensor_size", "uint64Val", str(node.size_bytes)
    if node.kind not in (SEND, RECEIVE, COLLECTIVE):
        return
    yield "comm_size", "int64Val", str(node.size_bytes)
    if node.kind == COLLECTIVE:
        yield "comm_type", "int64Val", str(schema.COLLECTIVES.index(node.operation.upper()))
        if node.group:
            yield "pg_name", "stringVal", node.group
        if node.peer >= 0:
            yield "comm_root", "int32Val", node.peer
        return
    yield "comm_src", "int32Val", trace.rank if node.kind == SEND else node.peer
    yield "comm_dst", "int32Val", node.peer if node.kind == SEND else trace.rank
    yield "comm_tag", "int32Val", node.tag


def _encoded(messages: list[dict[str, Any]]) -> Iterator[bytes]:
    """Yield messages in protobuf, each preceded by its length."""
    classes = schema.messages()
    from google.protobuf import json_format

    make = classes["GlobalMetadata"]
    for message in messages:
        types: Mapping[str, Any] = {"type": schema.NODE_TYPES.index(message["type"])} if "type" in message else {}
        data = json_format.ParseDict({**message, **types}, make()).SerializeToString()
        yield _varint(len(data)) + data
        make = classes["Node"]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def write_goal(job: JobTrace, path: Path) -> None:
    """Write all ranks into one file. Raise ``ScenarioError`` for a trace with collective operations."""
    lines = [f"num_ranks {len(job.ranks)}"]
    for trace in job.ranks:
        lines += ["", f"rank {trace.rank} {{"]
        for node in trace.nodes:
            if node.kind == COLLECTIVE:
                cure = "export the messages of a run (testbed export RUN), which have none"
                raise ScenarioError(f"{trace.place(node)}: GOAL has no collective operations; {cure}")
            lines.append(f"l{node.id}: {_operation(node)}")
        lines += [f"l{node.id} requires l{other}" for node in trace.nodes for other in node.after]
        lines.append("}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _operation(node: TraceNode) -> str:
    if node.kind == SEND:
        return f"send {node.size_bytes}b to {node.peer} tag {node.tag}"
    if node.kind == RECEIVE:
        return f"recv {node.size_bytes}b from {node.peer} tag {node.tag}"
    return f"calc {round(node.duration_s * 1e9)}"
