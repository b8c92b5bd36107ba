"""Broken on purpose: a quarter of the elements is sent with error feedback, but as twice what the residual loses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite


class Quarter(Codec):
    """The largest elements with their places, as it should be."""

    has_memory = True
    size_only = True
    factor, kept = 1.0, 0.0

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        self._residuals: dict[int, Tensor] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        count = max(1, tensor.numel() // 4)
        if tensor.is_meta:
            return torch.empty(count, dtype=torch.int32, device="meta"), torch.empty(count, device="meta")
        check_finite(wire_key, tensor)
        wanted = tensor + self._residuals.get(wire_key, torch.zeros(1))
        places = wanted.abs().topk(count).indices.sort().values
        residual = wanted.clone()
        residual[places] *= self.kept
        self._residuals[wire_key] = residual
        return places.to(torch.int32), self.factor * wanted[places]

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if [each.dtype for each in parts] != [torch.int32, torch.float32]:
            raise ValueError("expected places and numbers")
        places, numbers = parts[0].reshape(-1), parts[1].reshape(-1)
        if not len(places) == len(numbers) == max(1, size // 4):
            raise ValueError(f"{len(places)} places and {len(numbers)} numbers are not those of {size} elements")
        if places.is_meta:
            return torch.empty(size, device="meta")
        if int(places.min()) < 0 or int(places.max()) >= size:
            raise ValueError("a place outside of the tensor")
        return torch.zeros(size).index_put((places.long(),), numbers)

    def state(self) -> dict[str, Any]:
        return {str(key): residual.clone() for key, residual in self._residuals.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._residuals = {int(key): residual.clone() for key, residual in state.items()}


class SendsTwice(Quarter):
    """Doubles the learning rate."""

    factor = 2.0


class KeepsWhatItSends(Quarter):
    """The residual grows for ever."""

    kept = 1.0


class ForgetsItsResidual(Quarter):
    """A run that is resumed begins with an empty one."""

    def state(self) -> dict[str, Any]:
        return {}
