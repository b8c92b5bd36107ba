"""Options of the source of training samples: memory, or a hierarchy of caches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from testbed.axes import Axis


@dataclass(frozen=True, slots=True)
class InMemory:
    """All samples are decoded and in memory when training begins: loading takes no time."""

    loads: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Cached:
    """Three levels (the DataCache of Shi et al., MLSys 2021): remote source, local disk, decoded samples in memory.

    Batches have the same bits as without it. Samples of the next batches are loaded while a step computes.
    """

    loads: ClassVar[bool] = True

    source: str = field(
        default="",
        metadata={"help": "data centre that has the samples and sends them over its links; default: a store "
                          "beside every worker, with 'rate' and 'latency'"},
    )  # fmt: skip
    rate: float = field(default=100e6, metadata={"help": "of the store, for each worker", "unit": "bit/s"})
    latency: float = field(default=0.02, metadata={"help": "of the store, for each request", "unit": "s"})
    decode: float = field(default=0.0, metadata={"help": "time to decode one sample", "unit": "s"})
    disk: int = field(default=1 << 30, metadata={"help": "space for encoded samples on each node", "unit": "bytes"})
    memory: int = field(default=1 << 30, metadata={"help": "space for decoded samples on each node", "unit": "bytes"})
    folder: str = field(
        default="",
        metadata={"help": "of the disk level, which then persists; default: it lasts as long as the run"},
    )
    prefetch: int = field(default=2, metadata={"help": "batches loaded ahead", "min": 0, "max": 1000})
    spread: bool = field(
        default=False,
        metadata={"help": "each worker of a data centre caches its share of the samples for the others"},
    )


LOADINGS: Axis[InMemory | Cached] = Axis("loading", {"in_memory": InMemory, "cached": Cached})
