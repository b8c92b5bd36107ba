"""What the host process, and users' programs that it starts, are given: interpreter, variables, and descriptors."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

_TUNABLES = "GLIBC_TUNABLES"
_KEPT_BYTES = 1 << 30  # by a process, of freed memory
_MOST_DESCRIPTORS = 1 << 20  # a hard limit may be a thousand times as large, and programs close all below it
# torch asks NVML for GPUs, which makes no context that forked nodes would inherit; numbers are those of nvidia-smi
GPU_NUMBERS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def own_interpreter() -> list[str]:
    """Return the beginning of the command of a host process or agent: it imports the testbed that this process does.

    -P: what lies in the working directory, such as a folder ``analysis`` or a file ``queue.py``, must hide no module.
    Unless the testbed itself lies there: else a clone that is not the installed one would be run by the other's code.
    """
    return [sys.executable, *([] if Path(__file__).resolve().parents[1] == Path.cwd() else ["-P"])]


def host_environment(around: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the host process, and so of all nodes; ``around`` is what else it has.

    One thread each, as many workers share few cores, and sums must not depend on a number of threads. And glibc's
    allocator keeps freed memory: by default it maps every large tensor anew and unmaps it when it is freed, which costs
    122 to 244 page faults per MB of tensors that ``buffers`` does not hold. So freed memory stays with the process, up
    to ``_KEPT_BYTES`` at the end of its one heap, which asks for huge pages. A larger tensor than that is still mapped
    on its own. The user's own tunables come last, and override these.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    tunables = ":".join(filter(None, [_own_tunables(), around.get(_TUNABLES)]))
    return {**around, **threads, **GPU_NUMBERS, _TUNABLES: tunables, "PYTHONUNBUFFERED": "1"}


def program_environment() -> dict[str, str]:
    """Return, in the host process, the environment of a user's program: without the settings of the allocator."""
    outer = {name: value for name, value in os.environ.items() if name != _TUNABLES}
    users = os.environ.get(_TUNABLES, "").removeprefix(_own_tunables()).lstrip(":")
    return outer | ({_TUNABLES: users} if users else {})


def allow_descriptors() -> None:
    """Let this process, and those that it starts, open as many files as they may: by default that is 1024.

    A process with a thousand peers, or nodes, needs more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _own_tunables() -> str:
    names = {"mmap_threshold": _KEPT_BYTES, "trim_threshold": _KEPT_BYTES, "arena_max": 1, "hugetlb": 1}
    return ":".join(f"glibc.malloc.{name}={value}" for name, value in names.items())
