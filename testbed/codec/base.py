"""What a codec is: flat float32 tensors to payload tensors and back, in both directions.

A child sends its contribution up (``encode`` at the child, ``decode`` at the server), and the server sends the value of
the key down (``encode_value`` at the server, ``decode_value`` at the child). A codec object is one end of one child's
connection to its servers: the child has one, and its server has one for each child. Memory (residuals, mirrors of the
other end's values) is kept per wire key. First values travel unchanged, without the codec; ``begin`` tells both ends.
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
    """Return the only part, flat. Raise ``ValueError`` unless there is exactly one, with this dtype and size."""
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

    A user's own codec has a nested frozen dataclass ``Options`` and is made as ``cls(cls.Options(...), context)``.
    Tensors may be on the ``meta`` device (``compute: modelled``). Then return meta parts of the same sizes as for real
    numbers, or of the largest possible sizes where these depend on the numbers.

    Worlds call encode, decode, encode_value and decode_value in other threads, one call at a time per codec and key.

    cost_name  the codec's row in the table of measured costs; ``make_codec`` sets it to the kind where it is empty
    outside    the kind of a user's own codec, whose numbers are checked on their way; set by ``make_codec``
    """

    cost_name: str = ""
    outside: str = ""

    def declare(self, wire_key: int, shape: KeyShape) -> None:
        """Note the shape of the key's tensors. Called once, before other methods, if the codec is ``by_shape``."""

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
        """Return the state on which the next payload of a value of ``size`` elements depends, beside the value itself.

        The server encodes a value once for all children whose ends have equal states. ``NOTHING``: the payload depends
        on the value alone; ``None``: this end shares its state with no other.
        """
        return None if self.has_memory else NOTHING

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        """Remember what ``encode_value`` would remember: an end in an equal state has encoded ``value`` as ``parts``,
        and this child is sent them, too. Not called where the state is ``NOTHING``.
        """

    def adjust(self, share: float) -> None:
        """From now on send this share of the elements of a contribution, where the codec is ``adjustable``."""

    def cost(self, operation: str, size: int) -> Cost | None:
        """Return the cost of ``operation``, the name of a method, for ``size`` elements.

        ``None``: it costs nothing, as the method returns the tensor that it was given (values that travel unchanged).
        """
        if operation in (ENCODE, DECODE) or getattr(type(self), operation) is not getattr(Codec, operation):
            encodes = operation.startswith(ENCODE)
            return cost_of(
                self.cost_name, operation, self.encode_s_per_element if encodes else self.decode_s_per_element
            )
        return None


class SummedCodec(Codec):
    """A codec whose payloads can be summed over all contributors, in one step or in several dependent steps.

    It declares ``summed``. All-reduce gets the tensors to sum from ``summing``. Where each contribution is sent by
    itself (``encode``), its payload is the tensors that ``summing`` yields for a single contributor.
    """

    @abstractmethod
    def summing(self, wire_key: int, tensor: Tensor, contributors: int) -> Generator[Parts, Parts, Tensor]:
        """Return the sum of the tensors of all ``contributors``, each of which runs this generator in step.

        Yield tensors to be summed, and receive their sums over all contributors; any number of times.
        """

    def sums(self, wire_key: int, size: int) -> tuple[int, ...]:
        """Return the element counts of the tensors that ``summing`` yields for a tensor of ``size`` elements.

        Servers sum each of them as a key of its own. Empty where ``summing`` yields only the tensor itself.
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
    """Advance the generator ``summing``. Return (tensors to sum next, ``None``), or at its end (``None``, result).

    sums  the sums of the tensors that ``steps`` yielded before; ``None`` at the start
    """
    try:
        return (next(steps) if sums is None else steps.send(sums)), None
    except StopIteration as end:
        return None, end.value


MakeCodec = Callable[[Any, CodecContext], Codec]
