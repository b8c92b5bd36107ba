"""Reads Chakra's execution traces, in protobuf or in the JSON of Chakra's own tools.

Protobuf files (``.et``) may be compressed by gzip. JSON is either the output of Chakra's jsonizer, one message after
the other in protobuf's JSON mapping, or the object ``workload_graph`` of Chakra's feeder. Sizes have the meaning that
ASTRA-sim gives them: ``comm_size`` is the data that one rank puts into a collective operation.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import CapabilityError, ScenarioError
from testbed.job_trace import model, schema
from testbed.job_trace.model import RankTrace, TraceNode, whole

VERSION = (0, 0, 4)  # the oldest version that has process groups, and the newest that exists
_VERSION = re.compile(r"(?:.*chakra\.)?(\d+(?:\.\d+)*)")
_FIRST_TAGS = (b"\x0a", b"\x12")  # a message GlobalMetadata begins with one of these: its version, or an attribute
_KINDS = {
    schema.COMP_NODE: model.COMPUTE,
    schema.MEM_LOAD_NODE: model.MEMORY,
    schema.MEM_STORE_NODE: model.MEMORY,
    schema.COMM_SEND_NODE: model.SEND,
    schema.COMM_RECV_NODE: model.RECEIVE,
    schema.COMM_COLL_NODE: model.COLLECTIVE,
}
_OPERATIONS = tuple(name.removesuffix("_BLOCK").lower() for name in schema.COLLECTIVES)
_GROUPS = "process_group:init"
_SPOILT = (ValueError, KeyError, TypeError, OverflowError, AttributeError)  # raised by JSON with unexpected types
_AS_WRITTEN = ("string", "bytes", "bool", "double", "float")  # types taken from JSON as they are; integers may be texts


def check_version(version: str, where: str, cure: str) -> None:
    """Raise ``ScenarioError`` unless the schema has the version that is read, or states no version.

    cure  advice with ``{}`` in place of "a newer" or "an older"
    """
    match = _VERSION.fullmatch(version)
    if version and not match:
        raise ScenarioError(f"{where}: '{version}' is not a version; write the trace again")
    found = tuple(map(int, match[1].split("."))) if match else VERSION
    if found != VERSION:
        which, age = ("oldest", "a newer") if found < VERSION else ("newest", "an older")
        problem = f"has version {version} of Chakra's schema, and 0.0.4 is the {which} that is read"
        raise ScenarioError(f"{where}: {problem}; {cure.format(age)}")


@dataclass(slots=True)
class Record:
    """A message ``Node`` of a file in any of the formats."""

    id: int
    name: str
    type: int
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    duration_us: float = 0.0
    values: str = ""  # of its inputs
    attributes: dict[str, Any] = field(default_factory=dict)


def read(path: Path, rank: int) -> RankTrace:
    """Return the trace of ``rank`` in a file. Raise ``ScenarioError``, which names file, rank and node."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ScenarioError(f"{path}: rank {rank}: {error}; write the trace again") from error
    if not data:
        raise ScenarioError(f"{path}: rank {rank}: is empty; write the trace again")
    is_json = data.lstrip()[:1] == b"{" or path.name.endswith((".json", ".json.gz"))
    reader = _Reader(str(path), rank)
    return reader.trace(reader.json_records(data) if is_json else reader.records(data))


class _Reader:
    """One file of one rank."""

    def __init__(self, file: str, rank: int) -> None:
        self._file = file
        self._rank = rank
        self._where = f"{file}: rank {rank}"
        self._from_pytorch = False  # converted from PyTorch's trace, in which control dependencies are the call stack

    def trace(self, records: Iterator[Record]) -> RankTrace:
        found = list(records)
        ids = Counter(record.id for record in found)
        if len(ids) < len(found):
            [(twice, _)] = ids.most_common(1)
            raise ScenarioError(f"{self._where}, node {twice}: two nodes have this id; write the trace again")
        nodes = tuple(self._node(record, ids) for record in found)
        if not nodes:
            raise ScenarioError(f"{self._where}: has no node; write the trace again")
        groups: dict[str, tuple[int, ...]] = {}
        for record in found:
            if record.type == schema.METADATA_NODE and _GROUPS in record.name:
                groups.update(self._groups(record))
        return RankTrace(self._rank, self._file, nodes, groups)

    # ---- messages -----------------------------------------------------------------------------------------------

    def records(self, data: bytes) -> Iterator[Record]:
        """Yield the nodes of a file in protobuf."""
        last = "its metadata"
        size, at = self._length(data, 0, last)
        if size and data[at : at + 1] not in (b"", *_FIRST_TAGS):
            problem = "is neither JSON nor protobuf of Chakra's schema"
            raise ScenarioError(f"{self._where}: {problem}; write the trace again, by Chakra 0.0.4 or newer")
        try:
            messages = schema.messages()
        except CapabilityError as error:
            raise CapabilityError(f"{self._where}: {error}") from None
        from google.protobuf.message import DecodeError

        make = messages["GlobalMetadata"]
        at = 0
        while at < len(data):
            size, at = self._length(data, at, last)
            if at + size > len(data):
                raise self._truncated(last)
            message = make()
            try:
                message.ParseFromString(data[at : at + size])
            except DecodeError as error:
                raise ScenarioError(
                    f"{self._where}: what follows {last} is not a message of Chakra's schema; write the trace again, "
                    "by Chakra 0.0.4 or newer"
                ) from error
            at += size
            if make is messages["GlobalMetadata"]:
                self._check_version(message.version, {each.name: _value(each) for each in message.attr})
                make = messages["Node"]
                continue
            last = f"node {message.id}"
            yield Record(
                message.id,
                message.name,
                message.type,
                tuple(message.ctrl_deps),
                tuple(message.data_deps),
                message.duration_micros,
                message.inputs.values,
                {each.name: _value(each) for each in message.attr},
            )

    def _length(self, data: bytes, at: int, last: str) -> tuple[int, int]:
        """Return the varint at this place, and the place where it ends."""
        value = 0
        for shift in range(0, 64, 7):
            if at >= len(data):
                raise self._truncated(last)
            value |= (data[at] & 0x7F) << shift
            at += 1
            if data[at - 1] < 0x80:
                return value, at
        raise ScenarioError(f"{self._where}: what follows {last} is not a length, so this is not a trace of Chakra")

    def _truncated(self, last: str) -> ScenarioError:
        return ScenarioError(f"{self._where}: the file ends in the middle of what follows {last}; copy it again, whole")

    def json_records(self, data: bytes) -> Iterator[Record]:
        """Yield the nodes of a file in JSON."""
        decoder = json.JSONDecoder()
        try:
            text = data.decode()
            first, at = decoder.raw_decode(text.lstrip())
        except ValueError as error:
            raise ScenarioError(f"{self._where}: is not JSON: {error}") from error
        if not isinstance(first, dict):
            raise ScenarioError(f"{self._where}: does not begin with a JSON object; write the trace again")
        if "workload_graph" in first:
            self._from_pytorch = True
            graph = first["workload_graph"]
            if not isinstance(graph, list):
                raise ScenarioError(f"{self._where}: its workload_graph is not a list of nodes; write the trace again")
            yield from (self._of_feeder(number, node) for number, node in enumerate(graph))
            return
        if "nodes" in first:
            problem = "is what PyTorch's ExecutionTraceObserver writes, which has no times"
            raise ScenarioError(f"{self._where}: {problem}; write the file of the profiler as workload.kineto")
        try:
            self._check_version(str(first.get("version", "")), _attributes(first))
        except _SPOILT as error:
            raise ScenarioError(f"{self._where}: its metadata cannot be read: {_told(error)}") from error
        last = "its metadata"
        text = text.lstrip()[at:].lstrip()
        while text:
            try:
                node, at = decoder.raw_decode(text)
            except ValueError as error:
                raise ScenarioError(f"{self._where}: what follows {last} is not a node of Chakra: {error}") from error
            if not isinstance(node, dict):
                problem = f"what follows {last} is not a node of Chakra, as it is not a JSON object"
                raise ScenarioError(f"{self._where}: {problem}; write the trace again")
            yield self._of_message(node)
            last = f"node {node.get('id', 0)}"
            text = text[at:].lstrip()

    def _of_message(self, node: Mapping[str, Any]) -> Record:
        """Return a node in protobuf's JSON mapping, in which 64-bit integers are texts."""
        place = f"{self._where}, node {node.get('id', 0)} '{node.get('name', '')}'"
        type_ = node.get("type", "INVALID_NODE")
        if type_ not in schema.NODE_TYPES:
            problem = f"has type '{type_}', which is not one of {', '.join(schema.NODE_TYPES)}"
            raise ScenarioError(f"{place}: {problem}; write the trace again")
        try:
            return Record(
                whole(node.get("id", 0)),
                str(node.get("name", "")),
                schema.NODE_TYPES.index(type_),
                tuple(map(whole, node.get("ctrlDeps", ()))),
                tuple(map(whole, node.get("dataDeps", ()))),
                float(node.get("durationMicros", 0)),
                node.get("inputs", {}).get("values", ""),
                _attributes(node),
            )
        except _SPOILT as error:
            raise ScenarioError(f"{place}: cannot be read: {_told(error)}; write the trace again") from error

    def _of_feeder(self, number: int, node: Mapping[str, Any]) -> Record:
        try:
            return Record(
                whole(node["Id"]),
                str(node.get("Name", "")),
                whole(node["NodeType"]),
                tuple(map(whole, node.get("ctrlDeps", ()))),
                tuple(map(whole, node.get("data_deps", ()))),
                float(node.get("runtime", 0)),
                attributes={key: value for key, value in node.items() if key.startswith(("comm_", "is_", "tensor_"))},
            )
        except _SPOILT as error:
            problem = f"entry {number} of its workload_graph cannot be read: {_told(error)}"
            raise ScenarioError(f"{self._where}: {problem}; write the trace again") from error

    def _check_version(self, version: str, attributes: Mapping[str, Any]) -> None:
        told = version or str(attributes.get("schema", ""))
        self._from_pytorch = not version and "schema" in attributes
        check_version(told, self._where, "convert the original trace again, by {} Chakra")

    # ---- nodes --------------------------------------------------------------------------------------------------

    def _node(self, record: Record, ids: Container[int]) -> TraceNode:
        attributes = record.attributes
        place = f"{self._where}, node {record.id} '{record.name}'"
        try:
            kind = model.NOTHING if 0 <= record.type <= schema.METADATA_NODE else _KINDS[record.type]
            on_host = attributes.get("is_cpu_op", False)
            if on_host not in (False, True):
                raise ValueError(f"is_cpu_op is {on_host}, which is neither true nor false")
            operation = ""
            if kind == model.COLLECTIVE and "comm_type" not in attributes and on_host:
                kind = model.COMPUTE  # the call that launches a collective operation
            elif kind == model.COLLECTIVE:
                operation = self._operation(attributes["comm_type"], place)
            is_sized = kind in (model.SEND, model.RECEIVE, model.COLLECTIVE) and operation != model.BARRIER
            peers = {model.SEND: "comm_dst", model.RECEIVE: "comm_src"}
            own = {model.SEND: "comm_src", model.RECEIVE: "comm_dst"}.get(kind, "")
            if own in attributes and whole(attributes[own]) != self._rank:
                problem = f"its {own} is rank {attributes[own]}, but this is the file of rank {self._rank}"
                raise ScenarioError(f"{place}: {problem}; write the trace again, or name its files by their ranks")
            return TraceNode(
                id=record.id,
                name=record.name,
                kind=kind,
                after=self._after(record, ids, place),
                duration_s=record.duration_us / 1e6,
                operations=float(attributes.get("num_ops", 0)),
                size_bytes=whole(attributes["comm_size"] if is_sized else attributes.get("tensor_size", 0)),
                peer=whole(attributes[peers[kind]] if kind in peers else attributes.get("comm_root", -1)),
                tag=whole(attributes.get("comm_tag", 0)),
                operation=operation,
                group=self._group(attributes, place),
                on_host=bool(on_host),
            )
        except KeyError as error:
            problem = (
                f"has type {record.type}, which is none" if record.type not in _KINDS else f"lacks attribute {error}"
            )
            raise ScenarioError(f"{place}: {problem}; write the trace again, by Chakra 0.0.4 or newer") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ScenarioError(
                f"{place}: an attribute cannot be read: {_told(error)}; write the trace again"
            ) from error

    def _operation(self, comm_type: Any, place: str) -> str:
        number = whole(comm_type)
        if not 0 <= number < len(_OPERATIONS):
            raise ScenarioError(f"{place}: comm_type {comm_type} is not one of 0 to {len(_OPERATIONS) - 1}")
        return _OPERATIONS[number]

    def _after(self, record: Record, ids: Container[int], place: str) -> tuple[int, ...]:
        """Return the nodes for which this one waits. With PyTorch, control dependencies only tell the caller."""
        after = record.data_deps if self._from_pytorch else (*record.data_deps, *record.ctrl_deps)
        for other in after:
            if other not in ids:
                raise ScenarioError(f"{place}: waits for node {other}, which is not in the file; write the trace again")
        return tuple(dict.fromkeys(after))

    def _group(self, attributes: Mapping[str, Any], place: str) -> str:
        if not all(attributes.get("involved_dim", ())):
            problem = (
                "its group is given by dimensions of a topology (involved_dim), but this network has no such dimensions"
            )
            raise ScenarioError(f"{place}: {problem}; write its process group (pg_name) into the trace")
        return str(attributes.get("pg_name", model.EVERYONE))

    def _groups(self, record: Record) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the process groups that PyTorch recorded at the start."""
        found: Any = record.values
        with suppress(ValueError, SyntaxError):
            found = ast.literal_eval(found)
        text = found[0] if isinstance(found, list) and found else found
        try:
            entries = json.loads(text) if isinstance(text, str) and text else text or []
            for entry in entries:
                yield str(entry["pg_name"]), tuple(map(whole, entry["ranks"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ScenarioError(
                f"{self._where}, node {record.id}: its process groups cannot be read: {error}"
            ) from error


def _told(error: Exception) -> str:
    """Return the problem in the file in words; Python's own messages about types would describe this program."""
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    if isinstance(error, (TypeError, AttributeError)):
        return "a value is of another type than in Chakra's schema"
    return str(error)


def _value(attribute: Any) -> Any:
    """Return the value of a message ``AttributeProto``."""
    field_ = attribute.WhichOneof("value")
    if field_ is None:
        return None
    value = getattr(attribute, field_)
    return list(value.values) if field_.endswith("_list") else value


def _attributes(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a message in protobuf's JSON mapping."""
    found: dict[str, Any] = {}
    for each in message.get("attr", ()):
        for key, value in each.items():
            type_ = key.removesuffix("Val")
            if key.endswith("List"):
                found[each["name"]] = value.get("values", [])
            elif type_ in _AS_WRITTEN:
                found[each["name"]] = value
            elif type_ != key:
                found[each["name"]] = whole(value)
    return found
