"""The manifest: the provenance of a run. Package versions are read without importing the packages."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypedDict

from testbed.axes import CodeFile
from testbed.version import VERSION

SCHEMA_VERSION = 1
_PACKAGES = ("torch", "numpy", "simpy", "networkx", "pandas", "pyarrow", "msgspec", "scikit-learn")


class Packages(TypedDict):
    torch: str | None
    numpy: str | None


_ENVIRONMENT_PREFIXES = ("OMP_", "MKL_", "MALLOC_", "CUDA_", "OPENBLAS_")
_GIT_LIMIT_S = 10.0
_git_state: dict[str, Any] = {}  # read once


class Software(TypedDict):
    version: str
    git_commit: str | None
    git_dirty_sha256: str | None


class Machine(TypedDict):
    system: str
    kernel: str
    cpu: str
    cores: int | None
    usable_cores: int


class Manifest(TypedDict):
    """The fields of ``manifest.json`` that are read again."""

    seed: int
    argv: list[str]
    testbed: Software
    python: str
    packages: Packages
    machine: Machine
    capabilities: dict[str, Any]


def describe(
    *, seed: int, argv: list[str], capabilities: Mapping[str, Any], now: datetime, code: Sequence[CodeFile] = ()
) -> dict[str, Any]:
    """Return the manifest of a run that starts ``now``.

    capabilities  the abilities of the machine that a probe found, and the choices of the back end
    code          files of techniques, topology readers and trace formats that are not shipped
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "started": now.astimezone(UTC).isoformat(timespec="seconds"),
        "argv": argv,
        "seed": seed,
        "testbed": {"version": VERSION, **git_state()},
        "python": platform.python_version(),
        "packages": packages(),
        "machine": machine(),
        "environment": environment(os.environ),
        "congestion_controls": _congestion_controls(),
        "capabilities": dict(capabilities),
        "code": [asdict(file) for file in code],
    }


def packages() -> dict[str, str | None]:
    return {name: version_of(name) for name in _PACKAGES}


@cache
def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that affect numerics; others may be secret."""
    return {name: value for name, value in sorted(variables.items()) if name.startswith(_ENVIRONMENT_PREFIXES)}


def machine() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "root": os.geteuid() == 0,
    }


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _congestion_controls() -> dict[str, Any]:
    """Return the congestion controls that the kernel has. The Plan states the one that the run uses."""
    ipv4 = "/proc/sys/net/ipv4/"
    return {
        "default": _read(ipv4 + "tcp_congestion_control").strip() or None,
        "available": _read(ipv4 + "tcp_available_congestion_control").split(),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def git_state() -> dict[str, Any]:
    """Return the commit and a digest of changes since then; both are ``None`` outside a checkout or after an error."""
    if not _git_state:
        _git_state.update(_read_git_state())
    return dict(_git_state)


def use_git_state(state: Mapping[str, Any]) -> None:
    """Let ``git_state`` return ``state``, which comes from the machine that sent this machine its code."""
    _git_state.clear()
    _git_state.update(state)


def _read_git_state() -> dict[str, Any]:
    directory = Path(__file__).parent
    unknown = {"git_commit": None, "git_dirty_sha256": None}
    try:
        # fails if the repository is not the testbed's, but one of the user around an installed package
        _git_output(directory, "ls-files", "--error-unmatch", Path(__file__).name)
        commit = _git_output(directory, "rev-parse", "HEAD")
        difference = _git_output(directory, "diff", "HEAD", "--binary", "--no-ext-diff")
    except subprocess.CalledProcessError:
        return unknown
    except (OSError, subprocess.TimeoutExpired) as error:
        return {**unknown, "git_error": str(error)}
    digest = hashlib.sha256(difference).hexdigest() if difference else None
    return {"git_commit": commit.decode().strip(), "git_dirty_sha256": digest}


def _git_output(directory: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, timeout=_GIT_LIMIT_S, check=True).stdout
