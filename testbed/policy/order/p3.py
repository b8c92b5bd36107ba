"""P3, priority-based parameter propagation: the first layers, which the next forward pass needs first, go first.

Jayarajan et al., Priority-based parameter propagation for distributed DNN training, MLSys 2019. The backward pass makes
the last layer's gradient first, but the forward pass needs the first layer's values first. So tensors are cut into
slices, and of the waiting slices the one nearest to the model's input is sent next; slices of one tensor keep their
order. A slice is not interrupted, so its size determines how long a more urgent slice waits. Servers answer a slice as
soon as it is complete, with its priority on every hop, the WAN included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.order.fifo import OVERLAP, Fifo
from testbed.preset import Preset


class P3(Fifo):
    """Keys of the first layers go first: keys are numbered in forward order."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="p3",
            summary="slices of the first layers overtake the others, and the next step begins before the last are back",
            source="GeoMX; Jayarajan et al., MLSys 2019",
            settings={"order": {}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """``slice``: 12 500 elements; the paper takes 50 000, for models a thousand times this project's demo."""

        slice: int = option(50_000, "largest piece of a tensor", unit="bytes")
        overlap: str = option("layers", **OVERLAP)

    def __init__(self, options: Options) -> None:
        super().__init__(Fifo.Options(options.slice, options.overlap))

    def priority(self, key: int) -> int:
        return -key
