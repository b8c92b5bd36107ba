"""Models by codecs that send part of a tensor now and the rest later: what travels is the change since the last value.

A codec with memory keeps back what it does not send. Of a gradient that is late; of a model it would be missing. So
the child sends, of its contribution w·x (w: what it counts for in the mean), the change w·(x - m), with the milestone
m: the value that it last took from this server. The server adds w·v, v being the value that it last sent to the child.
The sum over children is v and the mean of their changes. With m = v it is the mean of models, as without a codec; where
the way down leaves m behind (``pull: difference``), nothing that is still on its way down is undone.

The codec's residual is the error feedback: a change that is not sent is part of the next one.
"""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.over import CodecOver


class ChangesCodec(CodecOver):
    """One end of the connection of a child whose contributions are models times ``weight``, over ``codec``."""

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
