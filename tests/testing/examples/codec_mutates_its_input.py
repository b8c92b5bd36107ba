"""Broken on purpose: clips the tensor that it was given, in place."""

from dataclasses import dataclass

from torch import Tensor

from testbed.codec.context import CodecContext
from testbed.codec.none import NoneCodec
from testbed.codec.options import NoneOptions


class MutatesItsInput(NoneCodec):
    """float32, clipped to ±1."""

    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        super().__init__(NoneOptions())

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.clamp_(-1, 1),)
