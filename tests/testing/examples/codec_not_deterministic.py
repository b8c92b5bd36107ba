"""Broken on purpose: rounds stochastically, with torch's own random numbers, or with one stream for all keys."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.codec.context import CodecContext
from testbed.codec.none import NoneCodec
from testbed.codec.options import NoneOptions


class NotDeterministic(NoneCodec):
    """float32, rounded to whole numbers, up or down by chance."""

    size_only = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, options: Options, context: CodecContext) -> None:
        super().__init__(NoneOptions())

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor if tensor.is_meta else torch.floor(tensor + torch.rand(tensor.shape)) * (tensor != 0),)


class SharesAStream(NotDeterministic):
    """The run's seed decides, and whichever keys were encoded before: all draw from one stream."""

    def __init__(self, options: NotDeterministic.Options, context: CodecContext) -> None:
        super().__init__(options, context)
        self._draws = torch.Generator().manual_seed(context.seed)

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        up = torch.rand(tensor.shape, generator=self._draws)
        return (tensor if tensor.is_meta else torch.floor(tensor + up) * (tensor != 0),)
