"""The bytes of best-effort messages: encodes messages as datagrams, and decodes datagrams. Uses no sockets.

    connection 8 | sequence number of the message 8 | channel 1 | index 1 | count 1 | piece | authentication code 16

The connection field is an identifier derived from a key of the reliable connection; the code covers prefix and piece.
The receiver accepts every piece of every message once, in any order. It drops and counts a datagram that is altered,
forged, repeated, or older than ``MEMORY`` messages.
"""

from __future__ import annotations

import hmac
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.best_effort import LENGTH_BYTES, MAC_BYTES, MAX_MESSAGE_BYTES, PIECE_BYTES, PREFIX_BYTES, piece_count
from testbed.messages import MalformedMessage, Message, decode_header, encode_header
from testbed.realtime.auth import Keys
from testbed.realtime.frame_codes import FrameCode, frame_code
from testbed.realtime.frames import Arrival, memory_of

_PREFIX = struct.Struct("!8sQBBB")  # connection, sequence number of the message, channel, index, count
assert _PREFIX.size == PREFIX_BYTES
_LENGTH = struct.Struct("!H")
_ID_BYTES = 8
MEMORY = 1 << 16  # how many messages behind the newest are still accepted; bounds the set of complete messages
MAX_PARTIAL = 4096  # most incomplete messages to keep: 16 MB, as a block of DGT is 4 kB


def connection_id(key: bytes) -> bytes:
    """Return the public identifier of one direction of a connection, which does not reveal the key."""
    return hmac.digest(key, b"datagrams: name", "sha256")[:_ID_BYTES]


def _code(kind: str, key: bytes) -> FrameCode:
    return frame_code(kind, hmac.digest(key, b"datagrams: code", "sha256"))


def _number(sequence: int, index: int) -> int:
    """Return the number of a datagram among all those of its connection; a message has at most 256 datagrams."""
    return sequence << 8 | index


class Packer:
    """Makes the datagrams of one direction of a connection."""

    def __init__(self, keys: Keys, mac: str) -> None:
        self._name = connection_id(keys.outgoing)
        self._code = _code(mac, keys.outgoing)
        self._sequence = 0

    def datagrams(self, body: bytes, channel: int) -> Iterator[bytes]:
        """Yield the datagrams of one message, with pieces of equal size except the last."""
        sequence, self._sequence = self._sequence, self._sequence + 1
        count = piece_count(len(body))
        size = -(-len(body) // count)
        for index in range(count):
            data = _PREFIX.pack(self._name, sequence, channel, index, count) + body[index * size : (index + 1) * size]
            yield data + self._code.of(_number(sequence, index), data)[-MAC_BYTES:]


def body_of(message: Message) -> bytes:
    """Return the bytes of a message before it is cut into pieces: at most ``MAX_MESSAGE_BYTES``."""
    header = encode_header(message)
    memories = [memory_of(part.detach().cpu().contiguous()) for part in message.parts if part.numel()]
    body = b"".join([_LENGTH.pack(len(header)), header, *memories])
    assert len(body) <= MAX_MESSAGE_BYTES, f"a best-effort message of {len(body)} bytes"
    return body


def message_of(body: bytes) -> tuple[Message, int]:
    """Return the message of a body, and the size of its length field and header. Raise ``MalformedMessage``."""
    if len(body) < LENGTH_BYTES:
        raise MalformedMessage(f"a message of {len(body)} bytes")
    (header_bytes,) = _LENGTH.unpack_from(body)
    start = LENGTH_BYTES + header_bytes
    message, parts = decode_header(memoryview(body)[LENGTH_BYTES:start], len(body) - start)
    for part in parts:
        if part.numel():
            memory_of(part)[:] = body[start : start + part.nbytes]
        start += part.nbytes
    return message, LENGTH_BYTES + header_bytes


class _Refused(Exception):
    """A datagram is dropped; the text names the reason."""


@dataclass(slots=True)
class _Peer:
    """State of one sender.

    ``done``: numbers of complete messages, at least those within ``MEMORY`` of the newest, and of forgotten incomplete
    ones. ``partial``: the pieces of incomplete messages, by number and index.
    """

    name: str
    code: FrameCode
    newest: int = -1
    done: set[int] = field(default_factory=set)
    partial: dict[int, dict[int, bytes]] = field(default_factory=dict)


class Unpacker:
    """Takes the datagrams of all senders. ``refused`` counts dropped datagrams by reason."""

    def __init__(self, mac: str) -> None:
        self._kind = mac
        self._peers: dict[bytes, _Peer] = {}
        self.refused: Counter[str] = Counter()

    def expect(self, peer: str, keys: Keys) -> None:
        """Accept datagrams from ``peer`` from now on; ``keys`` are those of its reliable connection."""
        self._peers[connection_id(keys.incoming)] = _Peer(peer, _code(self._kind, keys.incoming))

    def take(self, data: memoryview) -> Arrival | None:
        """Decode a datagram; return its message if this was the last missing piece of it."""
        try:
            return self._take(data)
        except _Refused as refused:
            self.refused[str(refused)] += 1
            return None

    def _take(self, data: memoryview) -> Arrival | None:
        if len(data) <= PREFIX_BYTES + MAC_BYTES:
            raise _Refused("too short")
        name, sequence, channel, index, count = _PREFIX.unpack_from(data)
        peer = self._peers.get(name)
        if peer is None:
            raise _Refused("of an unknown connection")
        code = peer.code.of(_number(sequence, index), data[:-MAC_BYTES])
        if not hmac.compare_digest(code[-MAC_BYTES:], data[-MAC_BYTES:]):
            raise _Refused("with a wrong code")
        if index >= count or len(data) > PREFIX_BYTES + PIECE_BYTES + MAC_BYTES:
            raise _Refused("malformed")
        body = self._add(peer, sequence, index, count, bytes(data[PREFIX_BYTES:-MAC_BYTES]))
        return None if body is None else self._finish(peer, body, channel, count)

    def _add(self, peer: _Peer, sequence: int, index: int, count: int, piece: bytes) -> bytes | None:
        if sequence in peer.done or sequence <= peer.newest - MEMORY:
            raise _Refused("repeated or too old")
        pieces = peer.partial.setdefault(sequence, {})
        if index in pieces:
            raise _Refused("repeated or too old")
        pieces[index] = piece
        complete = len(pieces) == count
        if complete:  # removed before ``_forget``, which could drop this message as the oldest incomplete one
            del peer.partial[sequence]
            peer.done.add(sequence)
        self._forget(peer, sequence)
        return b"".join(pieces[at] for at in range(count)) if complete else None

    def _forget(self, peer: _Peer, sequence: int) -> None:
        """Bound memory: drop the oldest incomplete message, and numbers of messages too old to be accepted."""
        if len(peer.partial) > MAX_PARTIAL:
            oldest = min(peer.partial)
            del peer.partial[oldest]
            peer.done.add(oldest)
        if sequence > peer.newest:
            peer.newest = sequence
            if len(peer.done) > 2 * MEMORY:
                peer.done = {number for number in peer.done if number > sequence - MEMORY}

    def _finish(self, peer: _Peer, body: bytes, channel: int, count: int) -> Arrival:
        try:
            message, header_bytes = message_of(body)
        except MalformedMessage as error:
            raise _Refused("malformed") from error
        if message.sender != peer.name or message.channel != channel:
            raise _Refused("in another's name")
        overhead_bytes = header_bytes + count * (PREFIX_BYTES + MAC_BYTES)
        return Arrival(message, overhead_bytes, payload_bytes=len(body) - header_bytes)
