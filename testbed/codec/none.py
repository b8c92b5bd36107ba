"""float32 as it is: four bytes an element, up and down."""

from __future__ import annotations

from torch import Tensor

from testbed.codec.dense import Dense
from testbed.codec.options import NoneOptions


class NoneCodec:
    """Sends the tensor itself."""

    def __init__(self, options: NoneOptions) -> None:
        self._dense = Dense()

    def begin(self, wire_key: int, value: Tensor) -> None:
        pass

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return self._dense.encode(tensor)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._dense.decode(parts, size)

    encode_value = encode
    decode_value = decode

    def encoded_bytes(self, size: int) -> int:
        return self._dense.bytes(size)

    value_bytes = encoded_bytes
