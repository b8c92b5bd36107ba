"""Nodes as hosts of a network, for programs: their names in /etc/hosts, and a way to start programs on each other.

Both exist inside the sandbox only. ``ssh`` and ``rsh`` in ``TOOLS`` start a command on another node, as launchers of
distributed programs do; see ``emulation.remote_shell``.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import CapabilityError

if TYPE_CHECKING:
    from emulation.network import Emulation

INTERFACE = "eth0"
TOOLS = Path("/run/testbed/bin")
HOSTS = Path("/run/testbed/hosts.json")
_ETC_HOSTS = Path("/run/testbed/hosts")
_REMOTE_SHELL = Path(__file__).with_name("remote_shell.py")
_MS_BIND = 4096


def environment(around: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that programs on a node need, besides those of the environment ``around``.

    PyTorch's back ends choose an interface by the machine's host name, which need not be an address of the node. The
    libraries below MPI would find shared memory between nodes, as all are on one machine.
    """
    interfaces = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), INTERFACE)
    fabrics = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": INTERFACE, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": INTERFACE}
    return {**fabrics, **interfaces, "PATH": f"{TOOLS}{os.pathsep}{around.get('PATH', os.defpath)}"}


def as_node(node: str) -> list[str]:
    """Return the prefix of a command that is started in a node's namespace: it sets the node's host name."""
    return [sys.executable, "-S", "-E", str(_REMOTE_SHELL), "--here", host_name(node)]


def host_name(node: str) -> str:
    """Return the host name of a node: ``worker0.tokyo`` for ``tokyo/worker0``."""
    return ".".join(reversed(node.split("/")))


def write_hosts(network: Emulation) -> None:
    """Make the nodes known by name. The sandbox alone sees the file that is mounted over /etc/hosts."""
    addresses = {host_name(name): port.ip for name, port in network.layout.hosts.items()}
    lines = [f"{address} {name}" for name, address in addresses.items()]
    _ETC_HOSTS.write_text("127.0.0.1 localhost\n" + "\n".join(lines) + "\n")
    _mount_over(_ETC_HOSTS, "/etc/hosts")
    namespaces = {host_name(name): network.namespace_path(name) for name in network.layout.hosts}
    by_address = {addresses[name]: [name, path] for name, path in namespaces.items()}
    HOSTS.write_text(json.dumps({name: [name, path] for name, path in namespaces.items()} | by_address))
    TOOLS.mkdir(exist_ok=True)
    for tool in ("ssh", "rsh"):
        script = TOOLS / tool
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{_REMOTE_SHELL}" "{HOSTS}" "$@"\n')
        script.chmod(0o755)


def _mount_over(source: Path, target: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(str(source).encode(), target.encode(), None, _MS_BIND, None):
        why = os.strerror(ctypes.get_errno())
        raise CapabilityError(
            f"{target}: cannot mount the names of nodes over it: {why}; make it a file, and let the container mount "
            "(--cap-add SYS_ADMIN)"
        )
