"""torch.distributed's all-reduce under our data-parallel training, to compare with ours."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.axes import option
from testbed.policy.collective.overlap import AFTERWARDS, OVERLAP

NCCL = "nccl"
BACKENDS = ("gloo", NCCL)


@dataclass(frozen=True, slots=True)
class GlooOptions:
    """Data-parallel training on torch.distributed: the same workers, hosts and links, its own sockets and all-reduce.

    Everything but the sum of gradients is as with ``allreduce``. Its bytes are those that its own TCP connections have
    carried (Gloo's headers included), as the kernel counts them.
    """

    backend: str = option("gloo", "gloo: on the CPU, over TCP. nccl: one GPU per worker", choices=BACKENDS)
    bucket: int = option(25_000_000, "bytes of gradients that are summed together", unit="bytes")
    overlap: str = option(AFTERWARDS, **OVERLAP)
