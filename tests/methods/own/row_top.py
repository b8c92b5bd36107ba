"""Of every row of a matrix the largest elements, at one scale a row, with a decayed error feedback; vectors whole."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.axes import option
from testbed.codec.base import Codec
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.key_shape import VECTOR, KeyShape


class RowTop(Codec):
    """Up: for each row k places, k signs as int8, and one scale. Down: 4 n bytes."""

    has_memory = True
    sparse = True
    size_only = True
    by_shape = True
    fades = True
    remembers = ("_errors",)

    @dataclass(frozen=True, slots=True)
    class Options:
        """``decay``: of the error."""

        k: int = option(4, "elements of a row that are sent", min=1, max=4096)
        decay: float = option(0.95, "what is left of an error after a round; 1: all", above=0, max=1)

    @classmethod
    def to_add_up(cls, options: Options) -> dict[str, float]:
        return {} if options.decay == 1 else {"decay": 1}

    def __init__(self, options: Options, context: CodecContext) -> None:
        self._options = options
        self._shapes: dict[int, KeyShape] = {}
        self._errors: dict[int, Tensor] = {}

    def declare(self, wire_key: int, shape: KeyShape) -> None:
        self._shapes[wire_key] = shape

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        shape = self._shapes.get(wire_key, KeyShape((tensor.numel(),)))
        if shape.role == VECTOR:
            return (tensor.clone(),)
        rows, columns = shape.matrix
        count = min(self._options.k, columns)
        if tensor.is_meta:
            kinds = ((rows * count, torch.int32), (rows * count, torch.int8), (rows, torch.float32))
            return tuple(torch.empty(size, dtype=dtype, device="meta") for size, dtype in kinds)
        check_finite(wire_key, tensor)
        matrix = (self._options.decay * self._errors.get(wire_key, 0.0) + tensor).view(rows, columns)
        places = matrix.abs().topk(count, dim=1).indices
        chosen = matrix.gather(1, places)
        parts = (places.int().flatten(), chosen.sign().to(torch.int8).flatten(), chosen.abs().mean(1))
        self._errors[wire_key] = matrix.flatten() - self.decode(wire_key, parts, tensor.numel())
        return parts

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        shape = self._shapes.get(wire_key, KeyShape((size,)))
        rows, columns = shape.matrix
        sent = rows * min(self._options.k, columns)
        whole = [(size, torch.float32)]
        expected = whole if shape.role == VECTOR else [(sent, torch.int32), (sent, torch.int8), (rows, torch.float32)]
        if [(part.numel(), part.dtype) for part in parts] != expected:
            raise ValueError(f"{len(parts)} parts are not those of {size} elements")
        if shape.role == VECTOR or parts[0].is_meta:
            return parts[0].flatten() if shape.role == VECTOR else torch.empty(size, device="meta")
        places, signs, scales = (part.reshape(rows, -1) for part in parts)
        if bool(((places < 0) | (places >= columns)).any()):
            raise ValueError(f"a place is outside of {columns} columns")
        return torch.zeros(rows, columns).scatter_(1, places.long(), signs.float() * scales).flatten()
