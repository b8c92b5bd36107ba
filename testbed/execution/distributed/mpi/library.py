"""The MPI library of this machine: whether it can be used, and how a worker becomes a rank of it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import struct
from pathlib import Path
from typing import Any

from testbed.errors import CapabilityError, RunFailed

CURE = "install both with: .venv/bin/python -m pip install mpi4py mpich"
_OVER_LIBFABRIC = re.compile(r"^MPICH Device:\s*ch4:.*\bofi\b", re.MULTILINE)
_SIOCGIFADDR = 0x8915
_THREAD_FUNNELED = 1  # the same in MPICH's ABI since 1.1, and in the standard's


def load_mpi() -> Any:
    """Return mpi4py's ``MPI``, not initialised. Raise ``CapabilityError`` unless it uses MPICH over libfabric."""
    os.environ.setdefault("UCX_HANDLE_ERRORS", "none")  # else UCX, if it is loaded, installs signal handlers
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CapabilityError(f"paradigm: mpi needs mpi4py and MPICH ({reason}); {CURE}") from error
    version = MPI.Get_library_version()
    if not _OVER_LIBFABRIC.search(version):
        raise CapabilityError(
            f"paradigm: mpi needs MPICH over libfabric (ch4:ofi), and mpi4py has loaded {name_of(version)!r}: others "
            f"have their ranks started by an mpirun of their own, or use no plain TCP; {CURE}; if both are there, "
            "MPI4PY_MPIABI=mpich chooses"
        )
    return MPI


def name_of(version: str) -> str:
    """Return name, version and device of an MPI library, by what it tells of its version."""
    first, _, rest = version.replace("\0", "").partition("\n")
    device = re.search(r"^MPICH Device:\s*(.*)$", rest, re.MULTILINE)
    return " ".join(first.split()) + (f", {device[1]}" if device else "")


def environment(rank: int, size: int, descriptor: int, address: str, algorithm: str) -> dict[str, str]:
    """Return the variables that MPICH reads when it starts: process manager, and TCP between ranks over ``address``."""
    return {
        "PMI_FD": str(descriptor), "PMI_RANK": str(rank), "PMI_SIZE": str(size), "MPIR_CVAR_PMI_VERSION": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": interface_of(address),
        "MPIR_CVAR_NOLOCAL": "1",  # else ranks of one machine use shared memory, past the emulated links
        # With one-sided operations (unused here) each send would wait for its acknowledgement: a round trip per step.
        "MPIR_CVAR_CH4_OFI_ENABLE_RMA": "0", "MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS": "0",
        "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": algorithm,
    }  # fmt: skip


def interface_of(address: str) -> str:
    """Return the network interface with this IPv4 address. Raise ``RunFailed`` if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                found = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    raise RunFailed(f"no network interface here has the address {address}")


def start(mpi: Any) -> None:
    """Call ``MPI_Init_thread`` in the thread that is to make all MPI calls, with the environment set.

    By ctypes and not by mpi4py, which keeps the interpreter's lock: the process manager, for whose answers MPICH waits,
    runs in the same interpreter.
    """
    library, provided = ctypes.CDLL(mpi.__file__), ctypes.c_int()
    code = library.MPI_Init_thread(None, None, _THREAD_FUNNELED, ctypes.byref(provided))
    if code:
        raise RunFailed(f"MPI_Init_thread has failed with code {code}")
    mpi.COMM_WORLD.Set_errhandler(mpi.ERRORS_RETURN)  # as Python's exceptions; else it ends the process


def forget_shared_memory() -> None:
    """Unlink MPICH's shared-memory files, which would stay behind after SIGKILL. No rank shares memory here.

    MPICH maps them and then closes them, so they are found by what is mapped.
    """
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    for path in set(re.findall(r"/dev/shm/mpich_shm_\S+$", mapped, re.MULTILINE)):
        Path(path).unlink(missing_ok=True)
