"""The libraries that can sum gradients: how their groups are made, and what the machine must have for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.devices import require_per_worker
from testbed.execution.distributed.meeting import InsideGroup, ProcessGroup
from testbed.execution.distributed.mpi.group import mpi_group
from testbed.execution.distributed.mpi.library import load_mpi
from testbed.execution.distributed.torch_group import gloo_group, nccl_group
from testbed.plan.model import Plan
from testbed.realtime.world import RealWorld


@dataclass(frozen=True, slots=True)
class Backend:
    """``make_group``: make a group of training workers, in each of them.

    ``require``: raise ``CapabilityError`` if this machine cannot serve so many workers, as a named option asks.
    ``on_gpu``: it sums tensors on GPUs, without a copy to main memory.
    """

    make_group: Callable[[RealWorld, Plan, Collectives], Awaitable[ProcessGroup]]
    require: Callable[[int, str], object]
    on_gpu: bool = False


BACKENDS = {
    "gloo": Backend(gloo_group, lambda workers, option: None),
    "nccl": Backend(nccl_group, require_per_worker, on_gpu=True),
    "mpi": Backend(mpi_group, lambda workers, option: load_mpi()),
}
INSIDE_GROUPS: dict[str, Callable[[RealWorld, Plan, Collectives], Awaitable[InsideGroup]]] = {
    "gloo": gloo_group,
    "nccl": nccl_group,
}
