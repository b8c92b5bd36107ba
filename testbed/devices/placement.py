"""Which GPU each node computes on: by load, and never on one whose memory does not suffice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.devices.inventory import Gpu
from testbed.errors import CapabilityError

CONTEXT_BYTES = 512 << 20  # of each process: CUDA's context, its kernels, and workspaces of cuBLAS and cuDNN
_COPIES = 5  # of the parameters: values, gradients, an optimizer's two moments, and what a codec keeps back


@dataclass(frozen=True, slots=True)
class Demand:
    """What a node asks for: ``index`` of a GPU, or a negative one for any; ``share`` of it; memory."""

    node: str
    index: int
    share: float
    memory_bytes: int


def memory_for(parameter_bytes: int) -> int:
    """Return the least memory that a process needs which trains, or aggregates, so many bytes of parameters."""
    return CONTEXT_BYTES + _COPIES * parameter_bytes


def place(demands: Sequence[Demand], gpus: Sequence[Gpu]) -> dict[str, int]:
    """Return the number of the GPU of each node.

    Nodes that name one come first; each of the others goes to the GPU with the least sum of shares that has memory
    left, in the order given. Raise ``CapabilityError`` if there is none.
    """
    load = dict.fromkeys((gpu.index for gpu in gpus), 0.0)
    free = {gpu.index: gpu.free_bytes for gpu in gpus}
    placed: dict[str, int] = {}
    for demand in sorted(demands, key=lambda demand: demand.index < 0):
        if demand.index >= 0 and demand.index not in load:
            raise CapabilityError(
                f"device.index: {demand.node} asks for GPU {demand.index}, and this machine has {_named(gpus)}; write "
                "'index: auto', or the number of one of these"
            )
        asked = load if demand.index < 0 else (demand.index,)
        able = [index for index in asked if free[index] >= demand.memory_bytes]
        if not able:
            raise CapabilityError(_too_small(demand, demands, gpus))
        index = min(able, key=lambda index: (load[index], index))
        load[index] += demand.share
        free[index] -= demand.memory_bytes
        placed[demand.node] = index
    return placed


def _named(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"GPU {gpu.index} ({gpu.name})" for gpu in gpus) or "no GPU"


def _too_small(demand: Demand, demands: Sequence[Demand], gpus: Sequence[Gpu]) -> str:
    free = ", ".join(f"GPU {gpu.index}: {_gib(gpu.free_bytes)} of {_gib(gpu.memory_bytes)} free" for gpu in gpus)
    need = sum(each.memory_bytes for each in demands)
    return (
        f"device.kind: too little GPU memory for {demand.node}: the {len(demands)} nodes on GPUs need at least "
        f"{_gib(need)} ({_gib(demand.memory_bytes)} for this one), and here is {free}; write 'kind: cpu' for some data "
        "centres, use fewer workers or a smaller model, or end what else runs on the GPU (nvidia-smi)"
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
