"""Ends of connections and tensors for the checks of codecs. Sizes lie around the bounds of bytes, words and options."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.check.subject import Subject
from testbed.check.verdict import CheckFailed, require
from testbed.codec.base import Codec
from testbed.codec.table import make_codec

SIZES = (1, 2, 3, 4, 5, 15, 16, 17, 64, 999, 1000, 1001, 4099)
LARGEST = max(SIZES)
KEY = 3
CONTRIBUTORS = 3
_DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8)

Parts = tuple[Tensor, ...]


def numbers(size: int, seed: int = 0) -> Tensor:
    """Return float32 [size], heavy-tailed, without zeros."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(size, generator=generator) / (torch.rand(size, generator=generator) + 0.1)
    return tensor + torch.where(tensor >= 0, 1e-3, -1e-3)


class CodecEnds:
    """Makes codec objects of one technique on one tier."""

    def __init__(self, subject: Subject, tier: int) -> None:
        self.subject, self.tier = subject, tier
        self._sums = subject.entry.pull_on(subject.options, tier) == "sparse-sum"

    def make(self, seed: int = 7) -> Codec:
        """Return a new end of a connection."""
        return make_codec(self.subject.kind, dict(self.subject.values), self.tier, CONTRIBUTORS, seed)

    def connected(self, size: int) -> tuple[Codec, Codec]:
        """Return the server's and the child's end; both hold the first value."""
        server, child, first = self.make(), self.make(), self.value(size, 99)
        server.begin(KEY, first)
        child.begin(KEY, first.clone())
        return server, child

    def value(self, size: int, seed: int = 0) -> Tensor:
        """Return a value that a server may hold: with ``sparse-sum`` the sum of what all contributors have sent."""
        if not self._sums:
            return numbers(size, seed)
        each = [numbers(size, seed * CONTRIBUTORS + rank) for rank in range(CONTRIBUTORS)]
        return torch.stack([self.make().decode(KEY, self.make().encode(KEY, one), size) for one in each]).sum(0)

    @property
    def draws(self) -> bool:
        """Whether payloads depend on the seed."""
        tensor = numbers(LARGEST)
        return not same(self.make(1).encode(KEY, tensor), self.make(2).encode(KEY, tensor))


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction between two new ends that hold the first value: contributions ``up``, or values down."""

    ends: CodecEnds
    up: bool
    source: Codec
    target: Codec
    size: int

    def tensor(self, seed: int = 0) -> Tensor:
        """Return numbers that may travel this way."""
        return numbers(self.size, seed) if self.up else self.ends.value(self.size, seed)

    def send(self, tensor: Tensor) -> Parts:
        """Encode at the source."""
        return (self.source.encode if self.up else self.source.encode_value)(KEY, tensor)

    def receive(self, parts: Parts, size: int | None = None) -> Tensor:
        """Decode at the target."""
        return (self.target.decode if self.up else self.target.decode_value)(KEY, parts, size or self.size)

    @property
    def modelled(self) -> Parts:
        """What new ends send of a tensor without numbers: the size of a payload, or its upper bound."""
        source, meta = self.ends.make(), torch.empty(self.size, device="meta")
        if self.up:
            return source.encode(KEY, meta)
        source.begin(KEY, meta)
        return source.encode_value(KEY, meta)

    def __str__(self) -> str:
        return f"{'decode' if self.up else 'decode_value'} on tier {self.ends.tier}"


def directions(subject: Subject, *sizes: int) -> Iterator[Direction]:
    """Yield both directions of both tiers for each of the sizes (default: all)."""
    for ends in tiers(subject):
        for size in sizes or SIZES:
            for up in (True, False):
                yield Direction(ends, up, *ends.connected(size), size)


def tiers(subject: Subject) -> Iterator[CodecEnds]:
    """Yield the makers for both tiers."""
    for tier in (1, 2):
        yield CodecEnds(subject, tier)


def bytes_of(parts: Parts) -> int:
    """Return the bytes of all parts together."""
    return sum(part.nbytes for part in parts)


def same(one: Parts, other: Parts) -> bool:
    """Return whether two payloads are equal to the bit."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


def layout(parts: Parts) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """Return dtype and shape of each part."""
    return [(part.dtype, tuple(part.shape)) for part in parts]


def require_tensor(arrived: object, size: int, what: str) -> Tensor:
    """Return ``arrived`` if it is a float32 tensor [size]."""
    if not isinstance(arrived, Tensor):
        raise CheckFailed(f"{what} to return a tensor", type(arrived).__name__, "return a flat float32 tensor")
    require(
        arrived.shape == (size,) and arrived.dtype == torch.float32, f"{what} to return float32 [{size}]",
        f"{arrived.dtype} {list(arrived.shape)}", "reshape and cast what is decoded",
    )  # fmt: skip
    return arrived


def damaged(honest: Parts, seed: int) -> Parts:
    """Return the parts with some replaced, reordered, cut, cast, or filled with other numbers."""
    draw = random.Random(seed)
    parts = list(honest)
    for _ in range(draw.randint(1, 3)):
        index = draw.randint(0, len(parts))
        part = parts[index] if index < len(parts) else torch.zeros(draw.randint(0, 20))
        damage = draw.choice(["drop", "copy", "cast", "cut", "fill", "shape", "reverse"])
        if damage == "cast":
            part = part.to(draw.choice(_DTYPES))
        elif damage == "cut":
            part = part.reshape(-1)[: draw.randint(0, 20)]
        elif damage == "fill":
            part = torch.full_like(part, draw.choice([0, 1, 85, 127]))
        elif damage == "shape":
            part = part.reshape(-1, 1)
        elif damage == "reverse":
            part = part.reshape(-1).flip(0)
        parts[index : index + (damage != "copy")] = [] if damage == "drop" else [part]
    return tuple(parts)
