"""Messages between nodes: their kinds and protocol, and how a message's header is encoded on the wire.

A message is a small header and zero or more raw tensors (``parts``). Both worlds use the same encoding: the real one
sends these bytes, the virtual one counts them, so that the two agree to the byte. Nothing is pickled.

Sequence of a run with servers (k: key, r: round; every arrow is one message):

    all nodes → scheduler     REGISTER
    scheduler → all nodes     READY            when every node of the Plan has registered (of many nodes, workers
                                               register through their server: testbed.engine.membership)
    child → its servers       DECLARE          a local server declares to its own servers once its first child has
    master worker → servers   INIT k           passed on to the top tier
    child → its servers       PULL k           answered by VALUE k, round -1, when there is a value
    workers → scheduler       BARRIER          answered by RELEASE when all have arrived; training starts
    child → its servers       PUSH k r         answered by VALUE k r, when the synchronisation policy says so
    worker → scheduler        DONE
    scheduler → all nodes     RELEASE "end"    when all workers have finished or left

Messages between two nodes arrive in the order in which they were sent, within one priority.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import msgspec
import torch

from testbed import buffers
from testbed.errors import RunFailed

MAX_HEADER_BYTES = 1 << 20  # room for the entries of an overlay's message, which may be thousands of slices
MAX_PARTS = 64
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 1 << 40  # dimensions of 0 count as 1, so that a shape such as (0, 2**60) does not pass as empty

# magic(4) sequence(8) header length(4) body length(8), and the authentication code at the end
FRAME_PREFIX_BYTES = 24
FRAME_MAC_BYTES = 32
_BATCH_BYTES = 65_536  # about fifty small messages per system call

_DTYPES = {
    "f4": torch.float32,
    "f8": torch.float64,
    "f2": torch.float16,
    "b2": torch.bfloat16,
    "i4": torch.int32,
    "i8": torch.int64,
    "i2": torch.int16,
    "i1": torch.int8,
    "u1": torch.uint8,
}
_DTYPE_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class MessageKind(StrEnum):
    """Kinds of message. A comment says which node sends the kind and when, its metadata and parts, and the answer.

    Every header contains the text of its kind.
    """

    # node → scheduler, before anything else, and again by a new process in the place of a lost one. Answer: READY.
    REGISTER = "register"
    # scheduler → node: every node has registered; or, to a process that joins a run in progress and registered at
    # ``registered_s`` (its ``sent_at_s``), its ``epoch``, the nodes that are absent (``gone``), the epochs in which
    # others have ``joined``, and the replicas that have taken over, by lost server (``heirs``).
    READY = "ready"
    # child → server, parts: wire keys, the number of elements of each, and, if tables travel by rows, the elements of a
    # row of each key (0: no table), all int64. ``codec``: chosen by a script. No answer. This and all other messages of
    # a child to its servers carry the last ``epoch`` on which all have agreed (``engine.peers``), if there was any.
    DECLARE = "declare"
    # master worker → server, passed on to the top tier: the first value of a key. ``optimizer``: chosen by a script.
    # No answer; pulls of the key wait for it.
    INIT = "init"
    # child → server: its contribution to (key, round), encoded. ``last``: the target is reached, this round is the
    # last; ``loss`` (DGT); ``reports``: seconds of a step and a transfer, by worker (ESync);
    # ``base``: the value at which a worker that waits for no other computed it (``upstream.Bases``). Answer: VALUE.
    PUSH = "push"
    # child → server: block number ``block`` of the ``of`` blocks of a push, on a best-effort channel (DGT). No answer.
    BLOCK = "block"
    # child → server: all best-effort blocks of a push have left the child (DGT). No answer.
    BLOCKS_SENT = "blocks-sent"
    # server → child, part: numbers of the blocks that have not arrived by the deadline (DGT). Answer: these BLOCKs,
    # sent reliably.
    MISSING = "missing"
    # child → server: request for the current value of a key or, with ``newest``, for that of the top tier. Answer:
    # VALUE of round -1, as soon as there is one.
    PULL = "pull"
    # server → child: the value of a key after a round, encoded, or its first value, exact; ``ReplyControl`` as
    # metadata. Answers PUSH and PULL.
    VALUE = "value"
    # node → scheduler: it has reached the barrier ``name`` of ``size`` nodes. ``sha256``: of its checkpoint file, if it
    # is the barrier of a checkpoint. Answer: RELEASE.
    BARRIER = "barrier"
    # global server → the first global server: the value of a key after ``round``, to be evaluated
    # (``engine.global_model``). No answer.
    SNAPSHOT = "snapshot"
    # scheduler → node: the barrier ``name`` is complete, or ``skipped``. "end": the run has ended. "final": all workers
    # have ended, and the global servers evaluate the model (answer: DONE). Servers do not wait at the barrier of a
    # checkpoint, but get its release as well, and then write their state.
    RELEASE = "release"
    # worker → scheduler: it has done its last round. Answer: RELEASE "end", when all workers have done theirs.
    DONE = "done"
    # worker → scheduler: it leaves a run that continues; answered by EPOCH, which names it. Child → server: its script
    # has ended, it pushes no more. World → worker (not on a wire): leave after this round.
    LEAVE = "leave"
    # rank → rank: chunks of operation ``key`` of the group ``group``, in ``pipe``; ``flag``: a rank raised its flag.
    COLLECTIVE = "collective"
    # stage → next stage: the activations of a micro-batch of training step ``step``; the key encodes the numbers of
    # the micro-batch and of the chunk. ``shape``: the shape of a tensor that passes through a codec; ``last``: the
    # target is reached, this round is the last. No answer.
    ACTIVATION = "activation"
    # stage → previous stage: the gradients of these activations. No answer.
    ACTIVATION_GRADIENT = "activation-gradient"
    # world → scheduler (not on a wire): the sender is lost, for the reason ``why``. Answer: EPOCH to those present.
    LOST = "lost"
    # scheduler → node: the nodes ``left`` take no part since membership ``epoch``, or the nodes ``joined`` do.
    # ``well``: they left on purpose; ``heir``: the replica that takes over from the first one. A node that reads its
    # own name among those that left ends. Answer: BARRIER "agree/" and the epoch, with the node's progress. When all
    # have answered, RELEASE says what they agree on: ``progress``, ``holder``, ``last``, and the ``first`` rounds of
    # workers that have joined.
    EPOCH = "epoch"
    # worker → worker: it has joined a run without servers, in ``epoch``; member → member of an overlay, likewise. No
    # answer.
    HELLO = "hello"
    # worker → worker: request for the receiver's state, after a certain round or now; the key is the number of the
    # request. Answer: STATE with the same key, the ``layout`` of the tensors in its parts, and the ``rest`` of the
    # state.
    STATE = "state"
    # member of an overlay → its root: it can send chunk ``key`` (``up``: contributions; else values); ``source`` and
    # ``speed``: the transfer that made it ready, in bytes per second. Answer: TELL, when the schedule says so.
    ASK = "ask"
    # root → member: send the chunk to the node ``to``. Answer: none; its target asks when it has arrived.
    TELL = "tell"
    # member → member or root: ``entries`` (``overlay.entries``) of a chunk's round; ``kept``: ranks, and seconds that
    # members kept theirs; ``speeds``: throughput measured below.
    MERGE = "merge"
    # root or member → member: the values of a chunk's round, to be passed on; ``waits``: seconds by rank; ``parents``:
    # the chunk's tree from its next round on; ``unrelayed``: not to be passed on.
    SPREAD = "spread"
    # worker → worker, part: numbers of samples; the key is the number of the request. Answer: SAMPLES.
    FETCH = "fetch"
    # worker → worker, parts: encoded samples, concatenated, and the size of each in bytes. Answers FETCH.
    SAMPLES = "samples"
    # global server → its replica: an aggregate that it has applied, or a first value. Answer: COPIED; only then does
    # the server reply to its children.
    COPY = "copy"
    # replica → global server: the copy of (key, round) is applied. Answers COPY.
    COPIED = "copied"
    # worker → neighbour: ``what`` says which message of the gossip algorithm it is (``engine.gossip``).
    GOSSIP = "gossip"


class Message(msgspec.Struct):
    """One message. A Struct, which is made in C: a simulation makes millions of them.

    key       number of the message's key or slice; -1: none
    round     training round; -1: none
    meta      metadata: small scalars, and what ``MessageKind`` names
    parts     payload tensors, contiguous; byte counts report their bytes as the payload
    priority  messages with larger numbers are sent first
    channel   0: reliable and in order; from 1 on: best effort, lower channels first (see ``World.send``)
    sender    set by the world, as is ``sent_at_s`` (the world's clock at ``send``, in seconds); for records
    began_s   when the transfer began, set by the receiver from its clock; not sent
    copies    the number of senders whose messages this one represents (folded workers of a simulation); not sent
    decoding  the ``Work`` of decoding the message, for a world that knows its duration beforehand; not sent
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
    began_s: float = 0.0
    copies: int = 1
    decoding: Any = None

    @property
    def payload_bytes(self) -> int:
        size_bytes = 0
        for part in self.parts:
            size_bytes += part.nbytes
        return size_bytes


class _Header(msgspec.Struct, array_like=True):
    kind: MessageKind
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
# MessagePack gives the length of an array in one byte up to 15 elements, in three bytes beyond.
_FEW = 15
_MORE_FOR_MANY = 2
_MOST_MEASURED = 4096
_measured: dict[int, tuple[torch.Tensor, int, int]] = {}  # by id: the part, its bytes, the bytes of its description
_decoder = msgspec.msgpack.Decoder(_Header)
_MOST_CHECKED = 4096
_checked: dict[tuple[str, tuple[int, ...]], tuple[torch.dtype, tuple[int, ...], int]] = {}  # parts that peers sent


class MalformedMessage(ValueError):
    """Bytes from a peer are not a message."""


def encode_header(message: Message) -> bytes:
    """Return the header as sent, with dtype and shape of each part. Raise ``RunFailed`` beyond ``MAX_HEADER_BYTES``."""
    header = _encode(message, [(_DTYPE_CODES[part.dtype], tuple(part.shape)) for part in message.parts])
    if len(header) > MAX_HEADER_BYTES:
        raise RunFailed(
            f"{message.kind} of key {message.key}: a header of {len(header)} bytes, the limit is {MAX_HEADER_BYTES}; "
            "write larger slices (order.slice) or smaller chunks (overlay.chunk)"
        )
    return header


def _encode(message: Message, parts: list[tuple[str, tuple[int, ...]]]) -> bytes:
    """Encode a header, which ``_Header`` decodes. A tuple is encoded as an array-like Struct is, but made faster."""
    return _encoder.encode(
        (
            message.kind,
            message.sender,
            message.key,
            message.round,
            message.sent_at_s,
            message.priority,
            message.channel,
            message.meta,
            parts,
        )
    )


def batch_bytes(unsent_limit_bytes: float) -> float:
    """Return the size at which a batch of messages is full. A batch leaves the queue together and is written at once.

    As no message can overtake a batch, it is no larger than the bytes that the kernel may hold unsent.
    """
    return min(_BATCH_BYTES, unsent_limit_bytes)


def wire_bytes(message: Message) -> tuple[int, int]:
    """Return payload and overhead in bytes.

    Parts without numbers are measured once: a simulation sends the same tensor object many times.
    """
    payload = 0
    parts = message.parts
    header = len(_encode(message, _NO_PARTS)) + (_MORE_FOR_MANY if len(parts) > _FEW else 0)
    for part in parts:
        known = _measured.get(id(part))
        if known is None or known[0] is not part:
            known = (part, part.nbytes, len(_encoder.encode((_DTYPE_CODES[part.dtype], tuple(part.shape)))))
            if part.is_meta:
                if len(_measured) == _MOST_MEASURED:
                    _measured.clear()
                _measured[id(part)] = known
        payload += known[1]
        header += known[2]
    return payload, FRAME_PREFIX_BYTES + header + FRAME_MAC_BYTES


def decode_header(data: bytes | memoryview, body_bytes: int) -> tuple[Message, list[torch.Tensor]]:
    """Return a message and its newly allocated parts, which the caller must fill from the body, in order.

    Raise ``MalformedMessage`` unless the declared parts make up exactly ``body_bytes``.
    """
    message, described = _decoded(data, body_bytes)
    parts = [buffers.empty(shape, dtype) for dtype, shape, _ in described]
    message.parts = tuple(parts)
    return message, parts


def decode_message(data: bytes | memoryview, body: memoryview) -> Message:
    """Return a message with its parts, copied from ``body``. Raise ``MalformedMessage`` for other bytes."""
    message, described = _decoded(data, len(body))
    parts = []
    start = 0
    for dtype, shape, size in described:
        if size:
            part = torch.frombuffer(bytearray(body[start : start + size]), dtype=dtype)
            parts.append(part if len(shape) == 1 else part.view(shape))
        else:
            parts.append(torch.empty(shape, dtype=dtype))
        start += size
    message.parts = tuple(parts)
    return message


def _decoded(
    data: bytes | memoryview, body_bytes: int
) -> tuple[Message, list[tuple[torch.dtype, tuple[int, ...], int]]]:
    """Return a message without its parts, and the type, shape and bytes of each part."""
    try:
        header = _decoder.decode(data)
        message = Message(
            header.kind,
            header.key,
            header.round,
            header.meta,
            (),
            header.priority,
            header.channel,
            header.sender,
            header.sent_at_s,
        )
        described = [_checked.get(part) or _check(part) for part in header.parts]
    except (msgspec.DecodeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise MalformedMessage(f"header: {error}") from error
    total = sum([size for _, _, size in described])
    if len(described) > MAX_PARTS or total != body_bytes:
        raise MalformedMessage(f"{len(described)} parts of {total} bytes, but a body of {body_bytes}")
    return message, described


def _check(part: tuple[str, tuple[int, ...]]) -> tuple[torch.dtype, tuple[int, ...], int]:
    """Return type, shape and bytes of a part. Raise ``MalformedMessage`` if it has no possible shape."""
    code, shape = part
    if len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
        raise MalformedMessage(f"shape {shape}")
    if math.prod(max(1, size) for size in shape) > MAX_ELEMENTS:
        raise MalformedMessage(f"shape {shape}")
    if len(_checked) == _MOST_CHECKED:
        _checked.clear()
    checked = _checked[part] = _DTYPES[code], shape, math.prod(shape) * _DTYPES[code].itemsize
    return checked
