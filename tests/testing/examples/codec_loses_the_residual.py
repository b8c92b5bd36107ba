"""Broken on purpose: of what a scaled sign leaves out, half is forgotten in every round; others keep NaN in it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.codec.none import NoneCodec
from testbed.codec.options import NoneOptions


class LosesTheResidual(NoneCodec):
    """Signs times the mean magnitude, as float32."""

    has_memory = True
    size_only = True
    _kept = 0.5

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        super().__init__(NoneOptions())
        self._residuals: dict[int, Tensor] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        if tensor.is_meta:
            return (tensor,)
        self._check(wire_key, tensor)
        wanted = tensor + self._residuals.get(wire_key, torch.zeros(1))
        sent = wanted.sign() * wanted.abs().mean()
        self._residuals[wire_key] = self._kept * (wanted - sent)
        return (sent,)

    def _check(self, wire_key: int, tensor: Tensor) -> None:
        check_finite(wire_key, tensor)


class RemembersNaN(LosesTheResidual):
    _kept = 1.0

    def _check(self, wire_key: int, tensor: Tensor) -> None:
        """Look at nothing."""


class RefusesTheNext(RemembersNaN):
    def _check(self, wire_key: int, tensor: Tensor) -> None:
        check_finite(wire_key, self._residuals.get(wire_key, torch.zeros(1)))
