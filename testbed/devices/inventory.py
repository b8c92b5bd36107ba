"""The GPUs of this machine, as the driver's library NVML reports them, and which node gets which. Free of torch.

Asked by ``nvidia-smi``, which comes with the driver and makes no CUDA context: a context does not survive a fork, and
the process that asks is the one that forks all nodes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

from testbed.errors import CapabilityError

COMMAND = "nvidia-smi"
_FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.free", "compute_cap")
_LIMIT_S = 30.0
_MIB = 1 << 20
VISIBLE = "CUDA_VISIBLE_DEVICES"
CONTEXT_BYTES = 512 << 20  # of each process: CUDA's context, its kernels, and workspaces of cuBLAS and cuDNN
_COPIES = 5  # of the parameters: values, gradients, an optimizer's two moments, and what a codec keeps back


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``index``: its number in this process, which counts the visible ones only; memory in bytes."""

    index: int
    uuid: str
    name: str
    driver: str
    memory_bytes: int
    free_bytes: int
    compute_capability: str


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that processes started here see, in the order of their numbers; none without a driver."""
    try:
        query = [COMMAND, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
        text = subprocess.run(query, capture_output=True, text=True, timeout=_LIMIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = ([cell.strip() for cell in line.split(",")] for line in text.splitlines())
    there = [_gpu(cells) for cells in rows if len(cells) == len(_FIELDS) and cells[0].isdecimal()]  # else a message
    return _visible(there, os.environ.get(VISIBLE))


def _gpu(cells: list[str]) -> Gpu:
    index, uuid, name, driver, total, free, capability = cells
    return Gpu(
        int(index), uuid, name, driver, _bytes(total, "SC_PHYS_PAGES"), _bytes(free, "SC_AVPHYS_PAGES"), capability
    )


def _bytes(mebibytes: str, pages: str) -> int:
    """Return the GPU's memory; where it has none of its own ("[N/A]"), the machine's, which it shares."""
    return int(mebibytes) * _MIB if mebibytes.isdecimal() else os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def _visible(there: list[Gpu], names: str | None) -> tuple[Gpu, ...]:
    """Return those that ``CUDA_VISIBLE_DEVICES`` names, numbered as CUDA numbers them: up to the first unknown one.

    None, if it names one twice. The parts of a GPU (``MIG-…``) are unknown.
    """
    if names is None:
        return tuple(there)
    found: list[Gpu] = []
    for word in filter(None, map(str.strip, names.split(","))):
        match = [gpu for gpu in there if word == str(gpu.index) or (len(word) > 4 and gpu.uuid.startswith(word))]
        if len(match) != 1:
            break
        (gpu,) = match
        if any(gpu.uuid == each.uuid for each in found):
            return ()
        found.append(
            Gpu(len(found), gpu.uuid, gpu.name, gpu.driver, gpu.memory_bytes, gpu.free_bytes, gpu.compute_capability)
        )
    return tuple(found)


def chosen() -> str:
    """Return what ``CUDA_VISIBLE_DEVICES`` says, for messages where too few GPUs are found: "" if it is not set."""
    text = os.environ.get(VISIBLE)
    return "" if text is None else f" that {VISIBLE}={text!r} names (numbers or GPU-… of whole GPUs, each once)"


@cache
def cuda_of_torch() -> str | None:
    """Return the version of CUDA that the installed torch was built for, without importing it; ``None``: without."""
    found = util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    lines = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8").splitlines()
    version = next((line.partition("=")[2].strip(" '\"") for line in lines if line.startswith("cuda")), "None")
    return None if version == "None" else version


def described() -> dict[str, Any]:
    """Return, for the manifest and ``testbed doctor``: every GPU, and the version of CUDA that torch is built for."""
    return {
        "cuda": cuda_of_torch(),
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid,
                "driver": gpu.driver,
                "memory_bytes": gpu.memory_bytes,
                "compute_capability": gpu.compute_capability,
            }
            for gpu in gpus()
        ],
    }


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
            there = ", ".join(f"GPU {gpu.index} ({gpu.name})" for gpu in gpus) or "no GPU"
            raise CapabilityError(
                f"device.index: {demand.node} asks for GPU {demand.index}, but this machine has {there}; write "
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


def _too_small(demand: Demand, demands: Sequence[Demand], gpus: Sequence[Gpu]) -> str:
    free = ", ".join(f"GPU {gpu.index}: {_gib(gpu.free_bytes)} of {_gib(gpu.memory_bytes)} free" for gpu in gpus)
    need = sum(each.memory_bytes for each in demands)
    return (
        f"device.kind: too little GPU memory for {demand.node}: the {len(demands)} nodes on GPUs need at least "
        f"{_gib(need)} ({_gib(demand.memory_bytes)} for this one), but only {free} is here; write 'kind: cpu' for some "
        "data centres, use fewer workers or a smaller model, or end what else runs on the GPU (nvidia-smi)"
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
