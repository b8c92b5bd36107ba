"""Other people's collectives under our data-parallel training: torch.distributed's and MPI's, to compare with ours."""

from __future__ import annotations

from dataclasses import dataclass, field

GLOO_BACKENDS = ("gloo", "nccl")


@dataclass(frozen=True, slots=True)
class GlooOptions:
    """Data-parallel training on torch.distributed: the same workers, hosts and links, its own sockets and all-reduce.

    Everything but the sum of gradients is as with ``allreduce``. Its bytes are those that its own TCP connections have
    carried (Gloo's headers included), as the kernel counts them.
    """

    backend: str = field(
        default="gloo",
        metadata={"help": "gloo: on the CPU, over TCP. nccl: one GPU per worker", "choices": GLOO_BACKENDS},
    )
    bucket: int = field(
        default=25_000_000, metadata={"help": "bytes of gradients that travel together", "unit": "bytes"}
    )
