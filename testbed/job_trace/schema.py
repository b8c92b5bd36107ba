"""The messages of Chakra's schema for execution traces, described for protobuf by their field numbers.

Source: MLCommons Chakra, schema/protobuf/et_def.proto, of May 2026. A file is a sequence of messages, each preceded by
its length as a varint: first one ``GlobalMetadata``, then one ``Node`` for each node.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from testbed.errors import CapabilityError

METADATA_NODE = 1
MEM_LOAD_NODE = 2
MEM_STORE_NODE = 3
COMP_NODE = 4
COMM_SEND_NODE = 5
COMM_RECV_NODE = 6
COMM_COLL_NODE = 7
NODE_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
COLLECTIVES = (
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
)
# The value of an attribute has one of these types, or is a list of it: fields 3 and 4 are double, 5 and 6 float, …
VALUE_TYPES = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
_PACKAGE = "ChakraProtoMsg"
_FIELDS: dict[str, tuple[tuple[str, int, str], ...]] = {  # name, number and type; "+" before the type: repeated
    "GlobalMetadata": (("version", 1, "string"), ("attr", 2, "+AttributeProto")),
    "IOInfo": (("values", 1, "string"), ("shapes", 2, "string"), ("types", 3, "string")),
    "Node": (
        ("id", 1, "uint64"),
        ("name", 2, "string"),
        ("type", 3, "int32"),
        ("ctrl_deps", 4, "+uint64"),
        ("data_deps", 5, "+uint64"),
        ("start_time_micros", 6, "uint64"),
        ("duration_micros", 7, "uint64"),
        ("inputs", 8, "IOInfo"),
        ("outputs", 9, "IOInfo"),
        ("attr", 10, "+AttributeProto"),
    ),
}


@cache
def messages() -> dict[str, Any]:
    """Return the classes of all messages by name. Raise ``CapabilityError`` without protobuf."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise CapabilityError(
            "Chakra's traces in protobuf need the package protobuf; install it with \"pip install 'testbed[chakra]'\""
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name="testbed/et_def.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add(message, *field)
    attribute = file.message_type.add(name="AttributeProto")
    _add(attribute, "name", 1, "string")
    _add(attribute, "doc_string", 2, "string")
    attribute.oneof_decl.add(name="value")
    for place, type_ in enumerate(VALUE_TYPES):
        of_list = f"{type_.capitalize()}List"
        _add(file.message_type.add(name=of_list), "values", 1, f"+{type_}")
        _add(attribute, f"{type_}_val", 3 + 2 * place, type_, choice=0)
        _add(attribute, f"{type_}_list", 4 + 2 * place, of_list, choice=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = (*_FIELDS, "AttributeProto", *(f"{type_.capitalize()}List" for type_ in VALUE_TYPES))
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in names}


def _add(message: Any, name: str, number: int, type_: str, choice: int | None = None) -> None:
    """Add a field to the description of a message. ``choice`` is the number of the ``oneof`` to which it belongs."""
    single = type_.removeprefix("+")
    label = message.field.add(name=name, number=number, label=1 if single == type_ else 3)
    if single in VALUE_TYPES:
        label.type = label.Type.Value(f"TYPE_{single.upper()}")
    else:
        label.type = label.Type.Value("TYPE_MESSAGE")
        label.type_name = f".{_PACKAGE}.{single}"
    if choice is not None:
        label.oneof_index = choice
