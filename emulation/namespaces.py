"""Network namespaces: entering them, sockets in them, and commands (``ip``, ``tc``) whose every error is raised."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

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
    """Enter the namespace at ``path`` within the context. For processes without threads, as setns moves one thread."""
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


_INTERRUPTED_DUMP = "Dump was interrupted and may be inconsistent."
"""``ip`` and ``tc`` say so if an interface changes while they list all of them, as it does if other commands run. They
look up what the list lacks, so a command that has then succeeded has done its work."""


class Commands:
    """Commands that run beside each other, ``at_once`` of them; leaving the context waits for all.

    Each runs in the namespace in which it is started. Raise ``RunFailed`` with the words of the first that fails.
    """

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._running: deque[tuple[str, subprocess.Popen[str]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            while self._running and kind is None:
                self._wait_for_first()
        finally:
            for _about, process in self._running:
                process.kill()
                process.communicate()

    def start(self, argv: Sequence[str], text: str) -> None:
        """Start a command with ``text`` on its standard input, as soon as few enough run."""
        while len(self._running) >= self._at_once:
            self._wait_for_first()
        with os.fdopen(os.memfd_create("commands"), "w+") as file:  # to a pipe, one would have to write while it runs
            file.write(text)
            file.seek(0)
            process = subprocess.Popen(argv, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._running.append((f"{' '.join(argv)} (one of: {'; '.join(text.splitlines())})", process))

    def batch(self, tool: str, lines: Sequence[str]) -> None:
        """Start ``ip`` or ``tc`` with commands, in order, if there are any."""
        if lines:
            self.start([tool, "-batch", "-"], "\n".join(lines) + "\n")

    def _wait_for_first(self) -> None:
        about, process = self._running.popleft()
        try:
            told = process.communicate(timeout=COMMAND_DEADLINE_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            told = f"no end within {COMMAND_DEADLINE_S:g} s; {process.communicate()[0]}"
        told = "\n".join(line for line in told.splitlines() if line.strip() != _INTERRUPTED_DUMP)
        if process.returncode or told.strip():  # none of them says anything else if all is well
            raise RunFailed(f"{about}: {told.strip()} (exit {process.returncode})")


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
