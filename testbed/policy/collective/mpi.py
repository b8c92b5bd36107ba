"""MPICH's all-reduce under our data-parallel training, to compare with ours."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from testbed.axes import option
from testbed.policy.collective.overlap import AFTERWARDS, OVERLAP


class MpichAlgorithm(Enum):
    """What MPICH calls its algorithms (``MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM``)."""

    AUTO = "auto"
    RING = "tsp_ring"
    RECURSIVE_DOUBLING = "sched_recursive_doubling"
    REDUCE_SCATTER_ALLGATHER = "sched_reduce_scatter_allgather"
    RECURSIVE_EXCHANGE = "tsp_recexch_single_buffer"
    TREE = "tsp_tree"


CHOICES = tuple(algorithm.name.lower() for algorithm in MpichAlgorithm)


@dataclass(frozen=True, slots=True)
class MpiOptions:
    """Data-parallel training on an MPI: the same workers, hosts and links, MPICH's own sockets and all-reduce.

    Everything but the sum of gradients is as with ``allreduce``. Its bytes are those that its own TCP connections have
    carried (MPICH's headers included), as the kernel counts them.
    """

    backend: ClassVar[str] = "mpi"
    algorithm: str = option("auto", "MPICH's own; auto: as it sees fit", choices=CHOICES)
    bucket: int = option(25_000_000, "bytes of gradients that travel together", unit="bytes")
    overlap: str = option(AFTERWARDS, **OVERLAP)

    @property
    def mpich_algorithm(self) -> MpichAlgorithm:
        return MpichAlgorithm[self.algorithm.upper()]
