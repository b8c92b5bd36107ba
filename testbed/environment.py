"""The environment of the host process and of users' programs: interpreter, variables, and limits of descriptors."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

_TUNABLES = "GLIBC_TUNABLES"
_KEPT_BYTES = 1 << 30  # of freed memory that a process keeps
_MOST_DESCRIPTORS = 1 << 20  # hard limits may be 1000 times larger, and some programs close every possible descriptor
# torch asks NVML for GPUs, which makes no context that forked nodes would inherit; numbers are those of nvidia-smi
GPU_NUMBERS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def own_interpreter() -> list[str]:
    """Return the beginning of the command of a host process or agent, which imports the same testbed as this process.

    With -P, files in the working directory, such as ``analysis/`` or ``queue.py``, do not hide modules. It is left out
    if the testbed itself is in the working directory; otherwise a clone would run the installed testbed's code.
    """
    return [sys.executable, *([] if Path(__file__).resolve().parents[1] == Path.cwd() else ["-P"])]


def host_environment(around: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return ``around`` with the settings of the host process, and so of all nodes.

    Each process uses one thread, as many workers share few cores, and sums must not depend on the number of threads.
    glibc's allocator is set to keep freed memory. By default, it maps every large tensor anew and unmaps it when freed,
    which costs 122 to 244 page faults per MB of tensors that ``buffers`` does not hold. With these settings, a process
    keeps up to ``_KEPT_BYTES`` of freed memory at the end of its only heap, which uses huge pages; larger tensors are
    still mapped separately. The user's own tunables come last, and override these.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    tunables = ":".join(filter(None, [_own_tunables(), around.get(_TUNABLES)]))
    return {**around, **threads, **GPU_NUMBERS, _TUNABLES: tunables, "PYTHONUNBUFFERED": "1"}


def program_environment() -> dict[str, str]:
    """Return the environment of a user's program: that of the host process without its allocator settings."""
    outer = {name: value for name, value in os.environ.items() if name != _TUNABLES}
    users = os.environ.get(_TUNABLES, "").removeprefix(_own_tunables()).lstrip(":")
    return outer | ({_TUNABLES: users} if users else {})


def allow_descriptors() -> None:
    """Raise the soft limit of open files, by default 1024, of this process and those that it starts.

    A process with a thousand peers or nodes needs more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _own_tunables() -> str:
    names = {"mmap_threshold": _KEPT_BYTES, "trim_threshold": _KEPT_BYTES, "arena_max": 1, "hugetlb": 1}
    return ":".join(f"glibc.malloc.{name}={value}" for name, value in names.items())
