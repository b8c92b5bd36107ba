"""The libraries that can sum gradients: how their groups are made, and what the machine must have for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import torch

from testbed.engine.collectives.collectives import Collectives
from testbed.errors import CapabilityError
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


def _gpus(workers: int) -> None:
    there = torch.cuda.device_count()
    if there < workers:
        raise CapabilityError(
            f"paradigm.backend: nccl needs a GPU for each of {workers} workers, and this machine has {there}; "
            "write 'backend: gloo', or train on as many workers as there are GPUs"
        )


BACKENDS = {
    "gloo": Backend(gloo_group, lambda workers: None),
    "nccl": Backend(nccl_group, _gpus),
    "mpi": Backend(mpi_group, lambda workers: load_mpi()),
}
