"""The declaration of a child's keys, which precedes its first round, and its pushes to these keys.

A declaration is sent as a message of kind ``DECLARE``. The message's parts are int64 columns with a row for each key:
the wire key, its elements and, if any key is a table, the elements of a row or 0. The metadata name the codec that a
script has chosen, and the shapes of the keys if a codec depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed.key_shape import KeyShape
from testbed.messages import Message, MessageKind
from testbed.policy.shard.slices import Slice

CodecChoice = tuple[str, dict[str, Any]]  # the codec that a script has chosen, and its options


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    """A key as its child knows it.

    size   the number of its elements
    width  the elements of a row, if the key is a table that is pulled by rows; otherwise 0
    shape  its shape, if a codec of this tier or of one above depends on it
    """

    size: int
    width: int = 0
    shape: KeyShape | None = None

    def part(self, piece: Slice) -> DeclaredKey:
        """Return the declaration of a slice of this key."""
        shape = self.shape and self.shape.part(piece.start, piece.stop)
        return DeclaredKey(piece.stop - piece.start, self.width, shape)


@dataclass(frozen=True, slots=True)
class Declaration:
    """All keys that a child declares to a server, by number, and the codec that its script has chosen, if any."""

    keys: Mapping[int, DeclaredKey]
    codec: CodecChoice | None = None

    @property
    def sizes(self) -> dict[int, int]:
        return {number: key.size for number, key in self.keys.items()}

    @property
    def widths(self) -> dict[int, int]:
        """The elements of a row, by table."""
        return {number: key.width for number, key in self.keys.items() if key.width}

    @property
    def shapes(self) -> dict[int, KeyShape]:
        return {number: key.shape for number, key in self.keys.items() if key.shape is not None}

    def only(self, numbers: Iterable[int]) -> Declaration:
        """Return the declaration of these keys alone."""
        return Declaration({number: self.keys[number] for number in numbers}, self.codec)

    def of_slices(self, slices: Sequence[Slice]) -> Declaration:
        """Return the declaration of ``slices`` of these keys, by their wire keys."""
        return Declaration({piece.wire_key: self.keys[piece.key].part(piece) for piece in slices}, self.codec)

    def message(self, priority: int = 0) -> Message:
        columns: list[Sequence[int]] = [list(self.keys), list(self.sizes.values())]
        if self.widths:
            columns.append([key.width for key in self.keys.values()])
        meta: dict[str, Any] = {"codec": list(self.codec)} if self.codec else {}
        if self.shapes:
            meta["shapes"] = [key.shape and astuple(key.shape) for key in self.keys.values()]
        parts = tuple(torch.tensor(column, dtype=torch.int64) for column in columns)
        return Message(MessageKind.DECLARE, meta=meta, parts=parts, priority=priority)


def declaration_of(message: Message) -> Declaration:
    """Inverse of ``Declaration.message``."""
    numbers, sizes, *further = (part.tolist() for part in message.parts)
    widths = further[0] if further else [0] * len(numbers)
    told = message.meta.get("shapes", [None] * len(numbers))
    shapes = [each and KeyShape(tuple(each[0]), each[1]) for each in told]
    keys = map(DeclaredKey, sizes, widths, shapes)
    return Declaration(dict(zip(numbers, keys, strict=True)), message.meta.get("codec"))


def declared(
    sizes: Sequence[int],
    widths: Mapping[int, int] | None = None,
    shapes: Mapping[int, KeyShape] | None = None,
    codec: CodecChoice | None = None,
) -> Declaration:
    """Return the declaration of keys 0, 1, 2, …; ``widths`` and ``shapes`` by key, for the keys that have one."""
    widths = widths or {}
    shapes = shapes or {}
    keys = {key: DeclaredKey(size, widths.get(key, 0), shapes.get(key)) for key, size in enumerate(sizes)}
    return Declaration(keys, codec)


class KeyPush(msgspec.Struct, frozen=True):
    """A child's contribution to a key's round.

    notes     further metadata of the push
    priority  the priority of the contributions from below, if the child is a server; ``None``: the order axis decides
    wanted    for a table: the rows that the reply must contain, int64 and ascending; ``None``: all rows
    """

    key: int
    round: int
    tensor: Tensor
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    priority: int | None = None
    wanted: Tensor | None = None
