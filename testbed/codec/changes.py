"""Sends models as changes since the last value, for codecs that send part of a tensor now and the rest later.

Such a codec keeps a residual. The withheld part of a gradient arrives late, but the withheld part of a model would be
missing. So instead of its contribution w·x (w: its weight in the mean), the child sends the change w·(x - m), where the
milestone m is the value that it last received from this server. The server adds w·v, where v is the value that it last
sent to the child. The sum over the children is then v plus the mean of their changes. If m = v, this is the mean of the
models, as without a codec. If the pull has left m behind v (``pull: difference``), v keeps the elements that the child
has not received yet.

The codec's residual is the error feedback: a change that is not sent is part of the next one.
"""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.over import CodecOver


class ChangesCodec(CodecOver):
    """One end of a child's connection that sends changes with ``codec``; contributions are models times ``weight``."""

    has_memory = True

    remembers = ("_milestones", "_codec")

    def __init__(self, codec: Codec, weight: float) -> None:
        super().__init__(codec)
        self._weight = weight
        self._milestones: dict[int, Tensor] = {}

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._milestones[wire_key] = value
        super().begin(wire_key, value)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return super().encode(wire_key, tensor - self._milestones[wire_key] * self._weight)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        """Raises ``ValueError`` too if this key has no first value yet."""
        if wire_key not in self._milestones:
            raise ValueError(f"a change of key {wire_key} came before its first value")
        return super().decode(wire_key, parts, size) + self._milestones[wire_key] * self._weight

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        self._milestones[wire_key] = value
        return super().encode_value(wire_key, value)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        value = self._milestones[wire_key] = super().decode_value(wire_key, parts, size)
        return value

    def value_state(self, wire_key: int, size: int) -> Hashable:
        state = super().value_state(wire_key, size)
        return None if state is None else (state,)  # not ``NOTHING``: each end keeps its own milestone

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        self._milestones[wire_key] = value
        super().follow_value(wire_key, value, parts)
