"""What nodes say to each other, and how a message's header looks on the wire.

A message is a small header and zero or more raw tensors (``parts``). Both worlds use ``encode_header``: the real one
sends these bytes, the virtual one counts them, so that the two agree to the byte. No pickle.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import msgspec
import torch

from testbed.errors import RunFailed

MAX_HEADER_BYTES = 1 << 20  # an overlay's tells of thousands of slices
MAX_PARTS = 64
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 1 << 40  # zeros not counted: beside a size of 0, any other would pass for nothing

# magic(4) sequence(8) header length(4) body length(8), and the authentication code at the end
FRAME_PREFIX_BYTES = 24
FRAME_MAC_BYTES = 32

_DTYPES = {
    "f4": torch.float32, "f8": torch.float64, "f2": torch.float16, "b2": torch.bfloat16,
    "i4": torch.int32, "i8": torch.int64, "i2": torch.int16, "i1": torch.int8, "u1": torch.uint8,
}  # fmt: skip
_DTYPE_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class MessageKind(StrEnum):
    """Kinds of message."""

    REGISTER = "register"  # node → scheduler: I am here
    READY = "ready"  # scheduler → node: everybody is here
    DECLARE = "declare"  # child → server: these are my keys and their sizes
    INIT = "init"  # master worker → server: the first value of a key
    PUSH = "push"  # child → server: my contribution to a key's round
    BLOCK = "block"  # child → server: a block of a push, which may be lost (DGT)
    MISSING = "missing"  # server → child: these blocks of your push have not come (DGT)
    PULL = "pull"  # child → server: send me the value of a key
    VALUE = "value"  # server → child: the value of a key
    BARRIER = "barrier"  # node → scheduler: I have reached it
    RELEASE = "release"  # scheduler → node: everybody has
    DONE = "done"  # node → scheduler: I have finished
    LEAVE = "leave"  # child → server, and → scheduler: I shall push no more; world → worker: say so
    COLLECTIVE = "collective"  # rank → rank: chunks of a collective operation
    LOST = "lost"  # world → scheduler: its sender is gone
    EPOCH = "epoch"  # scheduler → node: who has left, or is back
    ASK = "ask"  # member of an overlay → its root: I am ready to send this chunk
    TELL = "tell"  # root → member: send it to that node
    MERGE = "merge"  # member → member or root: contributions of several members to a chunk
    SPREAD = "spread"  # root or member → member: the values of a chunk, to be passed on
    FETCH = "fetch"  # worker → worker: send me these samples
    SAMPLES = "samples"  # worker → worker: here they are
    COPY = "copy"  # global server → its replica: make this step as well
    COPIED = "copied"  # replica → global server: made
    GOSSIP = "gossip"  # worker → neighbour: its model, or a word about the end


class Message(msgspec.Struct):
    """One message. A Struct, as there is one for everything that is said, and these are made in C.

    key       index of the tensor (or slice) that it is about; -1: none
    round     training round
    meta      small scalars only; what else a receiver must know
    parts     payload tensors, contiguous; their bytes are the payload that byte counts report
    priority  larger goes first where the order policy looks at it
    channel   0: reliable and in order; 1…: best effort, the lower the sooner (see ``World.send``)
    sender    stamped by the world, as is ``sent_at_s`` (its clock at ``send``)
    copies    how many messages of as many senders this one stands for (folded workers of a simulation); not on the wire
    """

    kind: MessageKind
    key: int = -1
    round: int = 0
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    parts: tuple[torch.Tensor, ...] = ()
    priority: int = 0
    channel: int = 0
    sender: str = ""
    sent_at_s: float = 0.0
    copies: int = 1

    @property
    def payload_bytes(self) -> int:
        """Bytes of tensors: what a codec produced."""
        size_bytes = 0
        for part in self.parts:
            size_bytes += part.nbytes
        return size_bytes


class _Header(msgspec.Struct, array_like=True):
    kind: str
    sender: str
    key: int
    round: int
    sent_at_s: float
    priority: int
    channel: int
    meta: dict[str, Any]
    parts: list[tuple[str, tuple[int, ...]]]


_encoder = msgspec.msgpack.Encoder()
_NO_PARTS: list[tuple[str, tuple[int, ...]]] = []
_FEW, _MORE_FOR_MANY = 15, 2  # MessagePack says in one byte how long a short array is, in three how long another is
_MOST_MEASURED = 4096
_measured: dict[int, tuple[torch.Tensor, int, int]] = {}  # by identity: the part, its bytes, those that describe it
_decoder = msgspec.msgpack.Decoder(_Header)


class MalformedMessage(ValueError):
    """Bytes from a peer that are not a message of ours."""


def encode_header(message: Message) -> bytes:
    """The header as sent: names, numbers, and dtype and shape of each part."""
    header = _encode(message, [_described(part) for part in message.parts])
    if len(header) > MAX_HEADER_BYTES:
        raise RunFailed(
            f"{message.kind} of key {message.key}: a header of {len(header)} bytes, the limit is {MAX_HEADER_BYTES}; "
            "write larger slices (order.slice), or let fewer travel together (overlay.chunk)"
        )
    return header


def _encode(message: Message, parts: list[tuple[str, tuple[int, ...]]]) -> bytes:
    """What ``_Header`` decodes. A tuple is the same bytes, and made more quickly."""
    return _encoder.encode(
        (
            message.kind, message.sender, message.key, message.round, message.sent_at_s,
            message.priority, message.channel, message.meta, parts,
        )
    )  # fmt: skip


def _described(part: torch.Tensor) -> tuple[str, tuple[int, ...]]:
    return _DTYPE_CODES[part.dtype], tuple(part.shape)


def overhead_bytes(message: Message) -> int:
    """Bytes on the wire that are not payload: frame prefix, header, authentication code."""
    return FRAME_PREFIX_BYTES + len(encode_header(message)) + FRAME_MAC_BYTES


def wire_bytes(message: Message) -> tuple[int, int]:
    """Payload and overhead. Parts without numbers are measured once: a simulation sends the same ones many times."""
    payload, parts = 0, message.parts
    header = len(_encode(message, _NO_PARTS)) + (_MORE_FOR_MANY if len(parts) > _FEW else 0)
    for part in parts:
        known = _measured.get(id(part))
        if known is None or known[0] is not part:
            known = (part, part.nbytes, len(_encoder.encode(_described(part))))
            if part.is_meta:
                if len(_measured) == _MOST_MEASURED:
                    _measured.clear()
                _measured[id(part)] = known
        payload += known[1]
        header += known[2]
    return payload, FRAME_PREFIX_BYTES + header + FRAME_MAC_BYTES


def decode_header(data: bytes | memoryview, body_bytes: int) -> tuple[Message, list[torch.Tensor]]:
    """A message with freshly allocated, unfilled parts; the caller fills them from the body, in order.

    Raises ``MalformedMessage`` unless the parts declared make up exactly ``body_bytes``.
    """
    try:
        header = _decoder.decode(data)
        message = Message(
            MessageKind(header.kind), header.key, header.round, header.meta, (),
            header.priority, header.channel, header.sender, header.sent_at_s,
        )  # fmt: skip
        sizes = [_part_bytes(code, shape) for code, shape in header.parts]
    except (msgspec.DecodeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise MalformedMessage(f"header: {error}") from error
    if len(sizes) > MAX_PARTS or sum(sizes) != body_bytes:
        raise MalformedMessage(f"{len(sizes)} parts of {sum(sizes)} bytes, but a body of {body_bytes}")
    parts = [torch.empty(shape, dtype=_DTYPES[code]) for code, shape in header.parts]
    message.parts = tuple(parts)
    return message, parts


def _part_bytes(code: str, shape: tuple[int, ...]) -> int:
    if len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
        raise MalformedMessage(f"shape {shape}")
    if math.prod(max(1, size) for size in shape) > MAX_ELEMENTS:
        raise MalformedMessage(f"shape {shape}")
    return math.prod(shape) * _DTYPES[code].itemsize
