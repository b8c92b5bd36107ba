"""Options of the source of training samples: memory, or a hierarchy of caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import Axis, option


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

    source: str = option("", "data centre that has the samples and sends them over its links; default: a store "
            "beside every worker, with 'rate' and 'latency'")  # fmt: skip
    rate: float = option(100e6, "of the store, for each worker", unit="bit/s")
    latency: float = option(0.02, "of the store, for each request", unit="s")
    decode: float = option(0.0, "time to decode one sample", unit="s")
    disk: int = option(1 << 30, "space for encoded samples on each node", unit="bytes")
    memory: int = option(1 << 30, "space for decoded samples on each node", unit="bytes")
    folder: str = option("", "of the disk level, which then persists; default: it lasts as long as the run")
    prefetch: int = option(2, "batches loaded ahead", min=0, max=1000)
    spread: bool = option(False, "each worker of a data centre caches its share of the samples for the others")


LOADINGS: Axis[InMemory | Cached] = Axis("loading", {"in_memory": InMemory, "cached": Cached})
