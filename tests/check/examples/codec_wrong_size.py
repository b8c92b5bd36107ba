"""Broken on purpose: payloads are four bytes larger than declared."""

from dataclasses import dataclass

from testbed.codec.context import CodecContext
from testbed.codec.none import NoneCodec
from testbed.codec.options import NoneOptions


class WrongSize(NoneCodec):
    """float32, with a wrong size."""

    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        super().__init__(NoneOptions())

    def encoded_bytes(self, size: int) -> int:
        return 4 * size - 4
