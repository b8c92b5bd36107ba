"""The libraries that can sum gradients: how their groups are made, and what the machine must have for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.devices import require_per_worker
from testbed.execution.distributed.meeting import ProcessGroup
from testbed.execution.distributed.mpi.group import mpi_group
from testbed.execution.distributed.mpi.library import load_mpi
from testbed.execution.distributed.torch_group import gloo_group, nccl_group
from testbed.plan.model import Plan
from testbed.realtime.world import RealWorld


@dataclass(frozen=True, slots=True)
class Backend:
    """``make_group``: make the group of a run's training workers, in each of them.

    ``require``: raise ``CapabilityError`` if this machine cannot serve so many workers.
    """

    make_group: Callable[[RealWorld, Plan, Collectives], Awaitable[ProcessGroup]]
    require: Callable[[int], object]


BACKENDS = {
    "gloo": Backend(gloo_group, lambda workers: None),
    "nccl": Backend(nccl_group, require_per_worker),
    "mpi": Backend(mpi_group, lambda workers: load_mpi()),
}
