"""Broken on purpose: NaN and infinities stay in the residuals; in ``RefusesTheNext``, a good tensor raises."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.codec.none import NoneCodec
from testbed.codec.options import NoneOptions


class RemembersNaN(NoneCodec):
    """Signs times the mean magnitude, as float32, with error feedback."""

    has_memory = True
    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        super().__init__(NoneOptions())
        self._residuals: dict[int, Tensor] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if tensor.is_meta:
            return (tensor,)
        wanted = tensor + self._residuals.get(wire_key, torch.zeros(1))
        sent = wanted.sign() * wanted.abs().mean()
        self._residuals[wire_key] = wanted - sent
        return (sent,)


class RefusesTheNext(RemembersNaN):
    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if wire_key in self._residuals:
            check_finite(wire_key, self._residuals[wire_key], "residual")
        return super().encode(wire_key, tensor)
