"""Network namespaces: entering them, sockets in them, and commands (``ip``, ``tc``) whose every error is raised."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testbed.errors import RunFailed

CLONE_NEWNET = 0x40000000
SIOCETHTOOL = 0x8946
# ethtool's (set, get) commands: TCP segmentation, generic segmentation, generic receive offload
OFFLOADS = {"tso": (0x1F, 0x1E), "gso": (0x24, 0x23), "gro": (0x2C, 0x2B)}
COMMAND_DEADLINE_S = 20.0
# asm-generic/socket.h
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33

_libc = ctypes.CDLL(None, use_errno=True)


def enter(path: str) -> None:
    """Move the calling thread into the network namespace at ``path`` (``/proc/<pid>/ns/net``) to stay."""
    with open(path, "rb") as namespace:
        if _libc.setns(namespace.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"{path}: {os.strerror(number)}")


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Be in the namespace at ``path`` while inside. For processes without threads: setns moves one thread only."""
    with open("/proc/thread-self/ns/net", "rb") as home:
        enter(path)
        try:
            yield
        finally:
            if _libc.setns(home.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot return to the former network namespace")


def socket_in(path: str, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
    """Return a non-blocking IPv4 socket of the network namespace at ``path``; it stays there wherever it is used."""
    with inside(path):
        made = socket.socket(socket.AF_INET, kind, protocol)
    made.setblocking(False)
    return made


def enlarge_buffers(sock: socket.socket, size_bytes: int) -> None:
    """Set both buffers beyond the kernel's limit where that is allowed; in a user namespace, up to the limit."""
    for force, plain in ((_SO_SNDBUFFORCE, socket.SO_SNDBUF), (_SO_RCVBUFFORCE, socket.SO_RCVBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, size_bytes)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, size_bytes)


def run(argv: Sequence[str], text: str = "") -> str:
    """Run a command to its end; return its output. Raise ``RunFailed`` with its error text if it fails."""
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False)
    if done.returncode:
        raise RunFailed(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()} (exit {done.returncode})")
    return done.stdout


def batch(tool: str, lines: Sequence[str]) -> None:
    """Run ``ip`` or ``tc`` commands in one process, in order. Raise ``RunFailed`` at the first that fails."""
    if not lines:
        return
    argv = [tool, "-batch", "-"]
    done = subprocess.run(
        argv, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=COMMAND_DEADLINE_S, check=False
    )
    if done.returncode or done.stderr.strip():
        raise RunFailed(f"{tool}: {done.stderr.strip()} (one of: {'; '.join(lines)})")


def offloads_off(interface: str) -> None:
    """Switch segmentation and receive offloads off, and read them back. Raise ``RunFailed`` if one stays on.

    With offloads, a queue holds packets of up to 64 kB: a loss drops 45 full frames at once, and a change of the rate
    has to wait for the one under way.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, (set_command, get_command) in OFFLOADS.items():
            _ethtool(control, interface, set_command, 0)
            if _ethtool(control, interface, get_command, 0):
                raise RunFailed(f"{interface}: cannot switch {name} off")


def _ethtool(control: socket.socket, interface: str, command: int, value: int) -> int:
    data = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(data))
    fcntl.ioctl(control.fileno(), SIOCETHTOOL, request)
    return int(struct.unpack("=II", data.raw)[1])
