"""Where training samples come from: memory, or levels that are slower and larger the farther away they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from testbed.axes import Axis


@dataclass(frozen=True, slots=True)
class InMemory:
    """All samples are decoded and in memory when training begins: loading costs nothing."""

    loads: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Cached:
    """Three levels (the DataCache of Shi et al., MLSys 2021): remote source, local disk, decoded samples in memory.

    Batches are the same bits as without it. Samples of the next batches are loaded while a step computes.
    """

    loads: ClassVar[bool] = True

    source: str = field(
        default="",
        metadata={"help": "data centre that has the samples and sends them over its links; unless said, a store "
                          "beside every worker that gives 'rate' after 'latency'"},
    )  # fmt: skip
    rate: float = field(default=100e6, metadata={"help": "of the store, for each worker", "unit": "bit/s"})
    latency: float = field(default=0.02, metadata={"help": "of the store, for each request", "unit": "s"})
    decode: float = field(default=0.0, metadata={"help": "time to decode one sample", "unit": "s"})
    disk: int = field(default=1 << 30, metadata={"help": "space for encoded samples on each node", "unit": "bytes"})
    memory: int = field(default=1 << 30, metadata={"help": "space for decoded samples on each node", "unit": "bytes"})
    folder: str = field(
        default="",
        metadata={"help": "of the disk level, for later runs too; unless said, it lasts as long as the run"},
    )
    prefetch: int = field(default=2, metadata={"help": "batches loaded ahead", "min": 0, "max": 1000})
    spread: bool = field(
        default=False,
        metadata={"help": "each worker of a data centre keeps its share of all samples, and the others ask it"},
    )


LOADINGS: Axis[InMemory | Cached] = Axis("loading", {"in_memory": InMemory, "cached": Cached})
