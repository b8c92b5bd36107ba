"""The paradigm ``mpi``: data-parallel training with MPICH's all-reduce, as a reference for this project's own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from testbed.axes import option
from testbed.policy.collective.overlap import AFTERWARDS, OVERLAP


class MpichAlgorithm(Enum):
    """MPICH's algorithms, by the values of its variable ``MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM``."""

    AUTO = "auto"
    RING = "tsp_ring"
    RECURSIVE_DOUBLING = "sched_recursive_doubling"
    REDUCE_SCATTER_ALLGATHER = "sched_reduce_scatter_allgather"
    RECURSIVE_EXCHANGE = "tsp_recexch_single_buffer"
    TREE = "tsp_tree"


CHOICES = tuple(algorithm.name.lower() for algorithm in MpichAlgorithm)


@dataclass(frozen=True, slots=True)
class MpiOptions:
    """Data-parallel training over MPI: the same workers, hosts and links, with MPICH's sockets and all-reduce.

    Everything except the sum of gradients is as with ``allreduce``. The bytes of a run are those that MPICH's TCP
    connections carried, including MPICH's headers; the kernel counts them.
    """

    backend: ClassVar[str] = "mpi"
    algorithm: str = option("auto", "of MPICH; auto: MPICH chooses one", choices=CHOICES)
    bucket: int = option(25_000_000, "bytes of gradients that are summed together", unit="bytes")
    overlap: str = option(AFTERWARDS, **OVERLAP)

    @property
    def mpich_algorithm(self) -> MpichAlgorithm:
        """The algorithm as MPICH names it."""
        return MpichAlgorithm[self.algorithm.upper()]
