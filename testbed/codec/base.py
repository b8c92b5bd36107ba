"""What a codec is: flat float32 tensors to payload tensors and back, in both directions.

Up goes a child's contribution (``encode`` at the child, ``decode`` at the server), down comes the value of the key
(``encode_value`` at the server, ``decode_value`` at the child). A codec object is one end of one child's connection to
its servers: the child has one, its server has one for this child. Memory (residuals, mirrors of what the other end
holds) is kept per wire key. First values travel exactly, outside the codec; both ends learn them by ``begin``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable
from typing import Any

import torch
from torch import Tensor

from testbed.codec.context import CodecContext
from testbed.codec.options import CodecDeclarations
from testbed.costs import DECODE, ENCODE, Cost, cost_of
from testbed.key_shape import KeyShape
from testbed.state import Remembering

Parts = tuple[Tensor, ...]
NOTHING = ()  # see ``Codec.value_state``


def part(parts: tuple[Tensor, ...], dtype: torch.dtype, size: int) -> Tensor:
    """The only part, flat. Raises ``ValueError`` unless it is one, of this dtype, with ``size`` elements."""
    if len(parts) != 1:
        raise ValueError(f"expected 1 part, got {len(parts)}")
    (tensor,) = parts
    if tensor.dtype != dtype or tensor.numel() != size:
        raise ValueError(f"expected {size} elements of {dtype}, got {tensor.numel()} of {tensor.dtype}")
    return tensor if tensor.dim() == 1 else tensor.reshape(size)


class Codec(CodecDeclarations, Remembering, ABC):
    """Tensors are flat float32. Payload parts are contiguous and never changed once returned.

        >>> from testbed.codec.fp16 import Fp16Codec, Fp16Options
        >>> child, server = Fp16Codec(Fp16Options()), Fp16Codec(Fp16Options())
        >>> (payload,) = child.encode(0, torch.tensor([0.5, -2.0]))
        >>> payload.dtype, server.decode(0, (payload,), size=2)
        (torch.float16, tensor([ 0.5000, -2.0000]))

    A codec from outside has a nested frozen dataclass ``Options`` and is made as ``cls(cls.Options(...), context)``.
    Tensors may be on the ``meta`` device (``compute: modelled``): return parts on it of the sizes that numbers give, or
    of the largest where sizes depend on the numbers.

    Worlds call the four methods in threads of their own, one at a time per codec and key.

    cost_name  by which the table of measured costs knows it; set to its kind by what makes it, unless it has one
    outside    the kind of a codec from outside, whose numbers are looked at on their way; set by what makes it
    """

    cost_name: str = ""
    outside: str = ""

    def declare(self, wire_key: int, shape: KeyShape) -> None:
        """Note the shape of the key's tensors. Called once, before all others, where the codec is ``by_shape``."""

    def begin(self, wire_key: int, value: Tensor) -> None:
        """Note that both ends hold exactly ``value`` for this key from now on (its first value, or after a restart)."""

    @abstractmethod
    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Return the payload of a contribution to the key, ``tensor``."""

    @abstractmethod
    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Return the contribution of ``size`` elements whose payload is ``parts``.

        ``parts`` are not changed; the result may share their memory. Raise ``ValueError`` when the parts cannot have
        come from ``encode`` for this size.
        """

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        """Return the payload of a key's value after a round, for this child; by default float32 as it is."""
        return (value.contiguous(),)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Return the value of ``size`` elements that this child will hold."""
        return part(parts, torch.float32, size)

    def value_state(self, wire_key: int, size: int) -> Hashable:
        """Return what the next payload of a value of ``size`` elements depends on beside the value.

        Children whose ends are in equal states are sent one payload. ``NOTHING``: it follows from the value alone;
        ``None``: on what no other end has.
        """
        return None if self.has_memory else NOTHING

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        """Remember what ``encode_value`` would: ``parts``, by an end in an equal state, are sent to this child, too.

        Not called where the state is ``NOTHING``.
        """

    def adjust(self, share: float) -> None:
        """From now on send this share of the elements of a contribution, where the codec is ``adjustable``."""

    def cost(self, operation: str, size: int) -> Cost | None:
        """Return what ``operation``, the name of a method, costs for ``size`` elements.

        ``None``: nothing, as it returns the tensor that it was given. So it is for values that travel as they are.
        """
        if operation in (ENCODE, DECODE) or getattr(type(self), operation) is not getattr(Codec, operation):
            encodes = operation.startswith(ENCODE)
            return cost_of(
                self.cost_name, operation, self.encode_s_per_element if encodes else self.decode_s_per_element
            )
        return None


class SummedCodec(Codec):
    """A codec whose payloads can be summed over all contributors, in one step or in several, each from the one before.

    It declares ``summed``. All-reduce asks it for what is to be summed (``summing``). Where each contribution is sent
    by itself, a payload is what it would sum if it were the only one.
    """

    @abstractmethod
    def summing(self, wire_key: int, tensor: Tensor, contributors: int) -> Generator[Parts, Parts, Tensor]:
        """Return the sum of the tensors of all ``contributors``, each of which is at the same place in its own.

        Yield tensors whose sums are needed, and get these; any number of times.
        """

    def sums(self, wire_key: int, size: int) -> tuple[int, ...]:
        """Return the elements of each tensor that ``summing`` yields for one of ``size``, the tensor itself left out.

        Servers sum each of them as a key of its own.
        """
        return ()

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        parts: list[Tensor] = []
        steps = self.summing(wire_key, tensor, 1)
        mine, _ = advanced(steps, None)
        while mine is not None:
            parts += [part.flatten() for part in mine]
            mine, _ = advanced(steps, mine)
        return tuple(parts)


def advanced(steps: Generator[Parts, Parts, Tensor], sums: Parts | None) -> tuple[Parts, None] | tuple[None, Tensor]:
    """Return what is to be summed next, or what has come of it; ``sums``: of what was yielded before."""
    try:
        return (next(steps) if sums is None else steps.send(sums)), None
    except StopIteration as end:
        return None, end.value


MakeCodec = Callable[[Any, CodecContext], Codec]
