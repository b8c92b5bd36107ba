"""One end of a connection whose tensors are on a GPU, which encodes and decodes them.

To send, the GPU encodes a tensor, and one copy brings the payload to the host. To receive, one copy brings the payload
to the GPU, which decodes it. So only payloads are copied between host and GPU, with any codec.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from torch import Tensor

from testbed.codec.base import NOTHING, Codec
from testbed.codec.over import CodecOver
from testbed.costs import ON_GPU, Cost, cost_of
from testbed.devices.accelerator import CODING, CPU, Accelerator

T = TypeVar("T")

_ASSUMED_ELEMENT_S = 2e-11  # two reads and a write at less than 1 TB/s; used until the table has a measured cost


class OnDevice(CodecOver):
    """Runs ``codec`` on ``accelerator``. If that is ``None``, tensors have no numbers, but cost as much as on a GPU."""

    has_memory = True

    def __init__(self, codec: Codec, accelerator: Accelerator | None) -> None:
        super().__init__(codec)
        self._accelerator = accelerator

    def cost(self, operation: str, size: int) -> Cost:
        """Return the cost, which is never ``None``: tensors that travel unchanged must be copied as well."""
        cost = self._codec.cost(operation, size)
        if cost is None:
            return cost_of(f"{ON_GPU} none", operation, _ASSUMED_ELEMENT_S)
        return Cost(f"{ON_GPU} {cost.row}", _ASSUMED_ELEMENT_S)

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._complete(lambda: self._codec.begin(wire_key, self._here(value)))

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return self._sent(lambda: self._codec.encode(wire_key, self._here(tensor)))

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        return self._sent(lambda: self._codec.encode_value(wire_key, self._here(value)))

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._received(parts, lambda here: self._codec.decode(wire_key, here, size))

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        return self._received(parts, lambda here: self._codec.decode_value(wire_key, here, size))

    def value_state(self, wire_key: int, size: int) -> Hashable:
        """Share a payload with other ends only if it depends on the value alone.

        To compare other states, their tensors would have to be in main memory.
        """
        return NOTHING if self._codec.value_state(wire_key, size) == NOTHING else None

    def state(self) -> dict[str, Any]:
        return {name: each.to(CPU) if isinstance(each, Tensor) else each for name, each in self._codec.state().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        def load() -> None:
            here = {name: self._here(each) if isinstance(each, Tensor) else each for name, each in state.items()}
            self._codec.load_state(here)

        self._complete(load)

    def _here(self, tensor: Tensor) -> Tensor:
        if self._accelerator is None or tensor.is_meta:
            return tensor
        (here,) = self._accelerator.to_device((tensor,))
        return here

    def _sent(self, encode: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        accelerator = self._accelerator
        if accelerator is None:
            return encode()
        with accelerator.on(CODING):
            return accelerator.to_host(encode())

    def _received(self, parts: tuple[Tensor, ...], decode: Callable[[tuple[Tensor, ...]], Tensor]) -> Tensor:
        accelerator = self._accelerator
        if accelerator is None:
            return decode(parts)
        return self._complete(lambda: decode(accelerator.to_device(parts)))

    def _complete(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the codecs' stream, wait until the GPU has finished, and return the result."""
        if self._accelerator is None:
            return function()
        with self._accelerator.on(CODING):
            return self._accelerator.timed(function)[0]
