"""The pull direction of sparse codecs: the largest differences, all changes, the non-zero elements, or everything."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed import buffers
from testbed.codec import pairs
from testbed.codec.base import NOTHING, Codec, part
from testbed.codec.context import CodecContext
from testbed.codec.errors import NonFiniteNumbers
from testbed.codec.memory import Select, numbers_of
from testbed.codec.options import CodecDeclarations, SparseOptions
from testbed.codec.pairs import entries, words
from testbed.codec.selectors import on_device
from testbed.codec.selectors.sources import Difference, NonFinite
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.costs import DECODE_VALUE, ENCODE_VALUE, Cost, cost_of
from testbed.state import Remembering


def make_pull(options: SparseOptions, highest_ratio: float, at: CodecContext) -> DensePull:
    """Return the pull direction ``options.pull``; ``highest_ratio`` is the largest share of elements ever pushed."""
    if options.pull == "difference":
        return DifferencePull(options.pull_ratio, SampleAndSweep(at.seed), options.padded)
    if options.pull == "sparse-sum":
        return SparseSumPull(highest_ratio, at.contributors, options.padded)
    return make_exact_pull(options.pull, at)


def make_exact_pull(pull: str, at: CodecContext) -> DensePull:
    """Return the pull direction ``changed`` or ``dense``. With either, the child receives the exact value."""
    return ChangedPull(at.contributors) if pull == "changed" else DensePull()


class DensePull(Remembering):
    """Tensors travel as float32, unchanged."""

    cost_name = ""

    def cost(self, operation: str) -> Cost | None:
        """Return the cost of ``encode_value`` or ``decode_value``; ``None`` if it costs nothing."""
        return cost_of(self.cost_name, operation, CodecDeclarations.encode_s_per_element) if self.cost_name else None

    def begin(self, wire_key: int, value: Tensor) -> None:
        """As in ``Codec``, like the other methods."""

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return (value.contiguous(),)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return part(parts, torch.float32, size)

    def on_contribution(self, wire_key: int, count: int) -> None:
        """Note the number of entries of the contribution that this end has just decoded."""

    def value_state(self, wire_key: int) -> Hashable:
        return NOTHING

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        pass


class PullingCodec(Codec):
    """A codec whose pull direction is ``_pull``."""

    _pull: DensePull

    def cost(self, operation: str, size: int) -> Cost | None:
        if operation in (ENCODE_VALUE, DECODE_VALUE):
            return self._pull.cost(operation)
        return super().cost(operation, size)

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._pull.begin(wire_key, value)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self._pull.encode_value(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._pull.decode_value(wire_key, parts, size)

    def value_state(self, wire_key: int, size: int) -> Hashable:
        return self._pull.value_state(wire_key)

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        self._pull.follow_value(wire_key, value, parts)


class SparseSumPull(DensePull):
    """Sends the non-zero elements exactly, or the dense tensor where that is not larger. No element is left out.

    A sum of P sparse contributions of k entries has at most P·k entries. For tensors without numbers, it counts as P·k,
    where k is taken from the last contribution, as a warm-up changes it. GeoMX's reply has ⌊2ρnP⌋ words (``padded``),
    with the highest ρ.
    """

    cost_name = "sparse-sum"

    def __init__(self, ratio: float, contributors: int | None, padded: bool = False) -> None:
        self._ratio = ratio
        self._contributors = contributors
        self._padded = padded
        self._counts: dict[int, int] = {}  # by key: the entries of the last contribution

    def on_contribution(self, wire_key: int, count: int) -> None:
        self._counts[wire_key] = count

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        size = value.numel()
        if value.is_meta:
            most = self._most(size, self._counts.get(wire_key))
            return super().encode_value(wire_key, value) if 2 * most >= size else pairs.shapes(most, self._words(size))
        positions = torch.from_numpy(np.flatnonzero(numbers_of(value))) if value.is_cpu else value.nonzero().view(-1)
        room = self._words(size)
        if 2 * positions.numel() >= size or (room is not None and 2 * positions.numel() > room):
            return super().encode_value(wire_key, value)
        return pairs.pack(positions, value[positions], room)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if len(parts) == 1:
            return super().decode_value(wire_key, parts, size)
        return pairs.scatter(*pairs.unpack(parts, size, size // 2, self._words(size)), size)

    def _most(self, size: int, count: int | None = None) -> int:
        """Return the largest number of entries of a sum. ``count``: entries of one contribution; default: the most."""
        return size if self._contributors is None else self._contributors * (count or entries(size, self._ratio))

    def _words(self, size: int) -> int | None:
        if not self._padded or self._contributors is None:
            return None
        room = max(2 * self._most(size), words(size, self._ratio * self._contributors))
        return room if room < size else None


class _Sent:
    """Identifies a sent tensor. Two are equal if they are the same tensor object, unmodified in between."""

    __slots__ = ("_tensor", "_version")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._version = tensor._version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sent) and self._tensor is other._tensor and self._version == other._version

    def __hash__(self) -> int:
        return hash((id(self._tensor), self._version))


def _digest(mirror: Tensor) -> Hashable:
    if mirror.is_meta:
        return mirror.numel()
    return hashlib.blake2b(numbers_of(mirror.cpu()).tobytes()).digest()


class _MirrorPull(DensePull):
    """Sends elements that replace those of the child's value. Both ends keep a mirror of the child's value."""

    remembers = ("_mirrors", "_counts")

    def __init__(self) -> None:
        self._mirrors: dict[int, Tensor] = {}
        self._sent: dict[int, Hashable] = {}  # by key: the last sent tensor; where it is equal, mirrors are equal
        self._counts: dict[int, int] = {}  # by key: values sent; tells equal mirrors with another past apart

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._mirrors[wire_key] = value.detach().clone()
        self._sent[wire_key] = _Sent(value)
        self._counts[wire_key] = 0

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._sent = {}

    def value_state(self, wire_key: int) -> Hashable:
        if wire_key not in self._sent and wire_key in self._mirrors:  # the mirror comes from a checkpoint
            self._sent[wire_key] = (self._counts.get(wire_key, 0), _digest(self._mirrors[wire_key]))
        return self._sent.get(wire_key)

    def _note(self, wire_key: int, parts: tuple[Tensor, ...]) -> None:
        self._sent[wire_key] = _Sent(parts[0])
        self._counts[wire_key] = self._counts.get(wire_key, 0) + 1

    def _mirror(self, wire_key: int, size: int) -> Tensor:
        """Return the mirror of the child's value. Raise ``ValueError`` if this key has no first value yet."""
        mirror = self._mirrors.get(wire_key)
        if mirror is None or mirror.numel() != size:
            raise ValueError(f"changes of key {wire_key} came before its first value")
        return mirror

    def _replaced(self, wire_key: int, indices: Tensor, values: Tensor, size: int) -> Tensor:
        """Return the child's new value: the mirror with ``values`` at ``indices``. It becomes the mirror."""
        mirror = self._mirror(wire_key, size)
        if values.is_meta:
            return torch.empty(size, device="meta")
        value = buffers.clone(mirror).index_copy_(0, indices.long(), values)  # returned values are never changed
        self._hold(wire_key, value)
        return value

    def _hold(self, wire_key: int, value: Tensor) -> None:
        self._mirrors[wire_key] = value
        self._sent.pop(wire_key, None)  # a child encodes no values, so it need not keep the first value alive


class DifferencePull(_MirrorPull):
    """Sends the elements in which the child's value differs most: their new values, so that these become exact.

    The server's mirror is the error feedback: elements that were not sent still differ, and are sent later.
    """

    cost_name = "difference"

    def __init__(self, ratio: float, select: Select, padded: bool = False) -> None:
        super().__init__()
        self._ratio = ratio
        self._select = select
        self._padded = padded

    def value_state(self, wire_key: int) -> Hashable:
        sent = super().value_state(wire_key)
        return sent if sent is None else (self._ratio, self._padded, sent)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        size = value.numel()
        count = entries(size, self._ratio)
        room = self._words(size)
        if value.is_meta:
            parts = pairs.shapes(count, room)
            self._note(wire_key, parts)
            return parts
        mirror = self._mirrors[wire_key]
        try:
            indices = self._chosen(value, mirror, count)
        except NonFinite as error:
            raise NonFiniteNumbers(wire_key, error.count, size, "change of the value") from error
        values = value[indices]
        mirror[indices] = values
        parts = pairs.pack(indices, values, room)
        self._note(wire_key, parts)
        return parts

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        size = value.numel()
        indices, values = pairs.unpack(parts, size, entries(size, self._ratio), self._words(size))
        if not value.is_meta:
            self._mirrors[wire_key].index_copy_(0, indices.long(), values)
        self._note(wire_key, parts)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Raises ``ValueError`` too if this key has no first value yet."""
        indices, values = pairs.unpack(parts, size, entries(size, self._ratio), self._words(size))
        return self._replaced(wire_key, indices, values, size)

    def _chosen(self, value: Tensor, mirror: Tensor, count: int) -> Tensor:
        if value.is_cpu:
            return torch.from_numpy(self._select(Difference(numbers_of(value), numbers_of(mirror)), count))
        return on_device.exact(-mirror, value, count)

    def _words(self, size: int) -> int | None:
        return words(size, self._ratio) if self._padded else None


class ChangedPull(_MirrorPull):
    """Sends all elements whose bits differ from the child's, or the dense tensor where that is not larger.

    No element is left out or late: the child has the same value as with ``dense``. This saves bytes where elements
    without a contribution do not change: P sparse contributions of k entries change at most P·k elements. For tensors
    without numbers, it counts as P·k, with the k of the last contribution.
    """

    cost_name = "changed"

    def __init__(self, contributors: int | None) -> None:
        super().__init__()
        self._contributors = contributors
        self._entries: dict[int, int] = {}  # by key: the entries of the last contribution

    def on_contribution(self, wire_key: int, count: int) -> None:
        self._entries[wire_key] = count

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        size = value.numel()
        parts = self._most(wire_key, size) if value.is_meta else self._changed(self._mirrors[wire_key], value)
        if 2 * parts[0].numel() >= size:
            parts = super().encode_value(wire_key, value)
        self.follow_value(wire_key, value, parts)
        return parts

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        if len(parts) == 1:
            self._mirrors[wire_key].copy_(value)
        elif not value.is_meta:
            self._mirrors[wire_key].index_copy_(0, parts[1].long(), parts[0])
        self._note(wire_key, parts)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Raises ``ValueError`` too if this key has no first value yet."""
        if len(parts) == 1:
            value = super().decode_value(wire_key, parts, size)
            self._mirror(wire_key, size)
            self._hold(wire_key, value)
            return value
        indices, values = pairs.unpack(parts, size, size // 2)
        return self._replaced(wire_key, indices, values, size)

    def _changed(self, mirror: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        indices = (value.view(torch.int32) != mirror.view(torch.int32)).nonzero().view(-1)
        return pairs.pack(indices, value[indices])

    def _most(self, wire_key: int, size: int) -> tuple[Tensor, ...]:
        entries_of_one = self._entries.get(wire_key, size)
        return pairs.shapes(min(size, (self._contributors or size) * entries_of_one))
