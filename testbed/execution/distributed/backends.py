"""The libraries that can sum gradients: how their groups are made, and what the machine must have for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from testbed.engine.collectives.collectives import Collectives
from testbed.execution.devices import require_per_worker
from testbed.execution.distributed.mpi.group import mpi_group
from testbed.execution.distributed.mpi.library import load_mpi
from testbed.execution.distributed.process_group import InsideGroup, ProcessGroup
from testbed.execution.distributed.torch_group import gloo_group, nccl_group
from testbed.plan.model import Plan
from testbed.policy.collective.options import LIBRARIES
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


def require(plan: Plan, nodes: Collection[str] | None = None) -> None:
    """Raise ``CapabilityError`` if this machine lacks what the plan's library asks of ``nodes``, by default of all."""
    here = [worker for worker in plan.training_workers if nodes is None or worker.name in nodes]
    paradigm = plan.technique.paradigm
    if paradigm.kind in LIBRARIES:
        BACKENDS[LIBRARIES[paradigm.kind](**paradigm.options).backend].require(len(here), "paradigm.backend")
    else:
        BACKENDS[paradigm.options["inside"]].require(len(here), "paradigm.inside")
