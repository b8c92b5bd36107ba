"""Broken on purpose: payloads are four bytes larger than without numbers."""

from dataclasses import dataclass

from torch import Tensor

from testbed.codec.context import CodecContext
from testbed.codec.none import NoneCodec
from testbed.codec.options import NoneOptions


class WrongSize(NoneCodec):
    """float32, with a wrong size on the meta device."""

    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        super().__init__(NoneOptions())

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return super().encode(wire_key, tensor[1:] if tensor.is_meta else tensor)
