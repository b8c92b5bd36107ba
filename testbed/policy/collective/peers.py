"""Other people's collectives under our data-parallel training: torch.distributed's and MPI's, to compare with ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option

GLOO_BACKENDS = ("gloo", "nccl")


@dataclass(frozen=True, slots=True)
class GlooOptions:
    """Data-parallel training on torch.distributed: the same workers, hosts and links, its own sockets and all-reduce.

    Everything but the sum of gradients is as with ``allreduce``. Its bytes are those that its own TCP connections have
    carried (Gloo's headers included), as the kernel counts them.
    """

    backend: str = option("gloo", "gloo: on the CPU, over TCP. nccl: one GPU per worker", choices=GLOO_BACKENDS)
    bucket: int = option(25_000_000, "bytes of gradients that travel together", unit="bytes")


MPI_ALGORITHMS = {
    "auto": "auto",
    "ring": "tsp_ring",
    "recursive_doubling": "sched_recursive_doubling",
    "reduce_scatter_allgather": "sched_reduce_scatter_allgather",
    "recursive_exchange": "tsp_recexch_single_buffer",
    "tree": "tsp_tree",
}
"""What MPICH calls its algorithms (``MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM``)."""


@dataclass(frozen=True, slots=True)
class MpiOptions:
    """Data-parallel training on an MPI: the same workers, hosts and links, MPICH's own sockets and all-reduce.

    Everything but the sum of gradients is as with ``allreduce``. Its bytes are those that its own TCP connections have
    carried (MPICH's headers included), as the kernel counts them.
    """

    backend: ClassVar[str] = "mpi"
    algorithm: str = option("auto", "MPICH's own; auto: as it sees fit", choices=tuple(MPI_ALGORITHMS))
    bucket: int = option(25_000_000, "bytes of gradients that travel together", unit="bytes")


LIBRARIES: dict[str, type[GlooOptions | MpiOptions]] = {"gloo": GlooOptions, "mpi": MpiOptions}
"""Paradigms whose sums are made by a library with sockets of its own."""
