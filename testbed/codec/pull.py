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
    """Return what ``options.pull`` names; ``highest_ratio`` is the largest ratio in push direction."""
    if options.pull == "difference":
        return DifferencePull(options.pull_ratio, SampleAndSweep(at.seed), options.padded)
    if options.pull == "sparse-sum":
        return SparseSumPull(highest_ratio, at.contributors, options.padded)
    return make_exact_pull(options.pull, at)


def make_exact_pull(pull: str, at: CodecContext) -> DensePull:
    """Return the pull direction ``changed`` or ``dense``, by either of which the child gets the value as it is."""
    return ChangedPull(at.contributors) if pull == "changed" else DensePull()


class DensePull(Remembering):
    """Tensors travel as float32, unchanged."""

    cost_name = ""

    def cost(self, operation: str) -> Cost | None:
        """Return what ``encode_value`` or ``decode_value`` costs; ``None`` if nothing."""
        return cost_of(self.cost_name, operation, CodecDeclarations.encode_s_per_element) if self.cost_name else None

    def begin(self, wire_key: int, value: Tensor) -> None:
        """As in ``Codec``, like the other methods."""

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return (value.contiguous(),)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return part(parts, torch.float32, size)

    def on_contribution(self, wire_key: int, count: int) -> None:
        """Note how many entries the contribution had that this end has just decoded."""

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
    """The non-zero elements, exactly; or the dense tensor, where that is not larger. Nothing is ever left out.

    A sum of P sparse contributions of k entries has at most P·k of them; without numbers, it has P·k: k is that of the
    contribution before, which a warm-up changes. GeoMX's reply has ⌊2ρnP⌋ words (``padded``), with the highest ρ.
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
        """Return the entries of a sum of contributions of ``count`` entries; by default of the largest ones."""
        return size if self._contributors is None else self._contributors * (count or entries(size, self._ratio))

    def _words(self, size: int) -> int | None:
        if not self._padded or self._contributors is None:
            return None
        room = max(2 * self._most(size), words(size, self._ratio * self._contributors))
        return room if room < size else None


class _Sent:
    """A tensor by which ends were brought into equal states: equal if it is the same one, unchanged since."""

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
    """Elements of the value that replace those which the child holds. Both ends have a mirror of what that is."""

    remembers = ("_mirrors", "_counts")

    def __init__(self) -> None:
        self._mirrors: dict[int, Tensor] = {}
        self._sent: dict[int, Hashable] = {}  # by key: equal at ends that were sent the same, and so have equal mirrors
        self._counts: dict[int, int] = {}  # by key: values sent; the mirror of who joined may become equal by itself

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._mirrors[wire_key] = value.detach().clone()
        self._sent[wire_key] = _Sent(value)
        self._counts[wire_key] = 0

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._sent = {}

    def value_state(self, wire_key: int) -> Hashable:
        if wire_key not in self._sent and wire_key in self._mirrors:  # of a checkpoint
            self._sent[wire_key] = (self._counts.get(wire_key, 0), _digest(self._mirrors[wire_key]))
        return self._sent.get(wire_key)

    def _note(self, wire_key: int, parts: tuple[Tensor, ...]) -> None:
        self._sent[wire_key] = _Sent(parts[0])
        self._counts[wire_key] = self._counts.get(wire_key, 0) + 1

    def _mirror(self, wire_key: int, size: int) -> Tensor:
        """Return what the child holds. Raise ``ValueError`` if this key has no first value yet."""
        mirror = self._mirrors.get(wire_key)
        if mirror is None or mirror.numel() != size:
            raise ValueError(f"changes of key {wire_key} came before its first value")
        return mirror

    def _replaced(self, wire_key: int, indices: Tensor, values: Tensor, size: int) -> Tensor:
        """Return the value that the child holds from now on, with ``values`` at ``indices``."""
        mirror = self._mirror(wire_key, size)
        if values.is_meta:
            return torch.empty(size, device="meta")
        value = buffers.clone(mirror).index_copy_(0, indices.long(), values)  # earlier values stay as they were
        self._hold(wire_key, value)
        return value

    def _hold(self, wire_key: int, value: Tensor) -> None:
        self._mirrors[wire_key] = value
        self._sent.pop(wire_key, None)  # a child encodes no values: it need not keep the first one


class DifferencePull(_MirrorPull):
    """The elements in which the child is furthest behind, as values, so that it then holds them to the last bit.

    The server's mirror of the child is the error feedback: what was not sent still differs, and is sent later.
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
    """All elements whose bits differ from what the child holds; or the dense tensor, where that is not larger.

    Nothing is left out, and nothing is late: the child holds what it would hold by ``dense``. It pays where elements
    without a contribution stay as they are: P sparse contributions of k entries change at most P·k of them. Without
    numbers, it is P·k, with the k of the contribution before.
    """

    cost_name = "changed"

    def __init__(self, contributors: int | None) -> None:
        super().__init__()
        self._contributors = contributors
        self._entries: dict[int, int] = {}  # by key: of the last contribution

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
