"""Broken on purpose: an end whose value another end has encoded still takes its child to hold the one before."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.context import CodecContext


class DoesNotFollow(Codec):
    """Sends the change of a value."""

    has_memory = True
    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        self._held: dict[int, Tensor] = {}
        self._sent: dict[int, int] = {}

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._held[wire_key], self._sent[wire_key] = value.clone(), 0

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.contiguous(),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if len(parts) != 1 or parts[0].numel() != size or parts[0].dtype != torch.float32:
            raise ValueError(f"no payload of {size} elements")
        return parts[0].clone()

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        self._sent[wire_key] = self._sent.get(wire_key, 0) + 1
        if value.is_meta:
            return (torch.empty_like(value),)
        change = value - self._held[wire_key]
        self._held[wire_key] = value.clone()
        return (change,)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        change = self.decode(wire_key, parts, size)
        if change.is_meta:
            return change
        self._held[wire_key] = self._held[wire_key] + change
        return self._held[wire_key].clone()

    def value_state(self, wire_key: int, size: int) -> Hashable:
        return self._sent.get(wire_key)

    def follow_value(self, wire_key: int, value: Tensor, parts: tuple[Tensor, ...]) -> None:
        self._sent[wire_key] = self._sent.get(wire_key, 0) + 1

    def state(self) -> dict[str, Tensor]:
        return {str(key): held.clone() for key, held in self._held.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self._held = {int(key): held.clone() for key, held in state.items()}
