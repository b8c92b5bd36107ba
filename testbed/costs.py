"""What work on tensors is, so that worlds know its duration: codecs' and optimizers'. Free of torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass

ENCODE, DECODE, ENCODE_VALUE, DECODE_VALUE = "encode", "decode", "encode_value", "decode_value"


@dataclass(frozen=True, slots=True)
class Cost:
    """One kind of work on tensors.

    row        its row in a table of measured costs, such as ``fp16 encode``
    element_s  seconds per element, where the table has no such row
    """

    row: str
    element_s: float


@functools.cache
def cost_of(name: str, operation: str, element_s: float) -> Cost:
    """Return the cost of ``operation`` of what the table knows as ``name``."""
    return Cost(f"{name} {operation}", element_s)
