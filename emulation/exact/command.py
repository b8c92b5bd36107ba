"""The command that runs a program in a user-mode kernel in virtual time."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emulation.exact.guest_init import OWN
from emulation.exact.kernel import Kernel
from testbed.errors import CapabilityError

JOB = ".exact.json"
GUEST_START = datetime(2024, 1, 1, tzinfo=UTC)  # time of the guest's clock at its start
_INIT = Path(__file__).with_name("guest_init.py")
# Variables kept from the user's environment: they locate code and choose numerical kernels. The manifest has them, too.
_KEPT = ("PYTHONPATH", "VIRTUAL_ENV", "PATH")
_KEPT_PREFIXES = ("ATEN_", "MKL_", "OMP_", "OPENBLAS_")
_MEMORY_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp")


@dataclass(frozen=True, slots=True)
class Guest:
    """The values that determine a guest's behaviour: all its random numbers and all times.

    seed            seed of all random numbers of the guest's kernel
    system_call_ns  virtual time of a system call
    memory_bytes    memory of the guest; the host allocates pages when they are used
    """

    seed: int
    system_call_ns: int
    memory_bytes: int

    def arguments(self) -> list[str]:
        """Return the kernel's arguments. The seed of its generator must not be 0."""
        return [
            f"mem={self.memory_bytes >> 20}M",
            "time-travel=inf-cpu",
            f"tt-syscall={self.system_call_ns}",
            f"time-travel-start={int(GUEST_START.timestamp()) * 10**9}",
            f"rngseed={self.seed % 2**63 + 1}",
            "seccomp=on",
        ]


def fixed_environment(around: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs in the guest: fixed, except for variables that affect code and numerics."""
    kept = {name: value for name, value in around.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    return {"HOME": "/root", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", **kept}


def exact_command(
    kernel: Kernel, guest: Guest, run_directory: Path, command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs ``command`` in a guest, and the environment to start it with.

    The guest reads its job from ``JOB`` in the run directory, which this function writes, and finds that directory at
    ``guest_init.RUN_DIRECTORY``. The command must be started by a thread that lives as long as the launcher.

    Raise ``CapabilityError`` if no folder for temporary files has room for the guest's memory, if a path has quotation
    marks, or if the guest would not see the run directory, the working directory or this installation.
    """
    place = run_directory.resolve()
    _require_seen(place, "the run directory")
    _require_seen(Path.cwd(), "the working directory")
    for folder in {sys.prefix, sys.base_prefix, str(_INIT.parents[2])}:
        _require_seen(Path(folder), "the installation")
    job: dict[str, Any] = {
        "run_directory": str(place),
        "working_directory": str(Path.cwd()),
        "command": list(command),
        "environment": dict(sorted(environment.items())),
    }
    (place / JOB).write_text(json.dumps(job, indent=2))
    boot = [
        kernel.path,
        *guest.arguments(),
        "root=none",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "con=null",
        "con0=fd:0,fd:1",
        "uml_dir=/dev/null",
        f"init={_quoted(sys.executable)}",
        "--",
        "-S",
        "-E",
        _quoted(str(_INIT)),
        _quoted(str(place / JOB)),
    ]
    outer = {"PATH": os.defpath, "TMPDIR": _memory_folder(guest.memory_bytes), "HOME": "/"}
    return ["setpriv", "--pdeathsig", "KILL", *boot], outer


def _require_seen(folder: Path, what: str) -> None:
    for own in OWN:
        if folder.is_relative_to(own):
            raise CapabilityError(
                f"{folder}: {what} of an exact run cannot lie below {own}, as its kernel has a {own} of its own; use "
                "another folder"
            )


def _quoted(path: str) -> str:
    """Return a path as one word for the kernel, which joins its arguments and divides them at spaces."""
    if '"' in path:
        raise CapabilityError(f"{path}: exact runs need paths without quotation marks")
    return f'"{path}"'


def _memory_folder(size_bytes: int) -> str:
    """Return a folder with room for the file that holds the guest's memory. The file never has a name there."""
    for folder in _MEMORY_FOLDERS:
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= size_bytes:
            return folder
    raise CapabilityError(
        f"the memory of an exact run, {size_bytes / 1e9:.1f} GB, has no room in {', '.join(_MEMORY_FOLDERS)};"
        " make room in one of them, or lower exact.memory"
    )
