"""Broken on purpose: values travel as differences, and the child's value is in no checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import Codec, part
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite


class Differences(Codec):
    """Down: float16 differences from what the child holds, as it should be."""

    has_memory = True
    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        self._mirrors: dict[int, Tensor] = {}  # of the server; of the child: its value
        self._is_child = False

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._mirrors[wire_key] = value.clone()

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        check_finite(wire_key, tensor)
        return (tensor.contiguous(),)

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return part(parts, torch.float32, size)

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        if value.is_meta:
            return (torch.empty(value.numel(), dtype=torch.float16, device="meta"),)
        difference = (value - self._mirrors[wire_key]).to(torch.float16)
        self._mirrors[wire_key] = self._mirrors[wire_key] + difference
        return (difference,)

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        self._is_child = True
        difference = part(parts, torch.float16, size)
        if difference.is_meta:
            return torch.empty(size, device="meta")
        self._mirrors[wire_key] = self._mirrors.get(wire_key, torch.zeros(size)) + difference
        return self._mirrors[wire_key].clone()

    def state(self) -> dict[str, Any]:
        return {str(key): mirror.clone() for key, mirror in self._mirrors.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._mirrors = {int(key): mirror.clone() for key, mirror in state.items()}


class ForgetsItsMirror(Differences):
    """The child of a run that is resumed adds differences to 0."""

    def state(self) -> dict[str, Any]:
        return {} if self._is_child else super().state()
