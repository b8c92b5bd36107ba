"""Machines that emulate: network namespaces on a switch, in which agents are forked from the tests' process.

All is inside a sandbox (``tests.emulation.inside``), with which it ends; ``tests.cluster.emulated_cases`` run there.
An agent is in namespaces of its own, as the sandbox of a real one would make them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from emulation.namespaces import enter
from emulation.sandbox_init import mount_own
from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import Placement, cluster_of
from testbed.cluster.starting import StartedAgent, Ticket
from testbed.execution import agent
from testbed.plan.model import Plan
from tests.cluster.forked import ForkedAgent, ForkedAgents

DRIVER = "10.78.0.1"
_NEW_MOUNTS, _NEW_PROCESSES, _NEW_NETWORK = 0x0002_0000, 0x2000_0000, 0x4000_0000
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE


def address(number: int) -> str:
    """Return the address of a machine."""
    return f"10.78.0.{10 + number}"


@contextmanager
def machines(count: int, mtu_bytes: int = 9000) -> Iterator[list[ClusterMachine]]:
    """Make network namespaces ``machine0`` and so on, each with an interface on a switch of the calling process."""
    _ip(
        "link add switch mtu 9000 type bridge",
        f"addr add {DRIVER}/24 dev switch",
        "link set switch up",
        "link set lo up",
    )
    found = []
    for number in range(count):
        name = f"machine{number}"
        pair = f"link add port{number} mtu {mtu_bytes} type veth peer eth0 mtu {mtu_bytes} netns {name}"
        _ip(
            f"netns add {name}", pair,
            f"link set port{number} master switch up", f"-n {name} addr add {address(number)}/24 dev eth0",
            f"-n {name} link set eth0 up", f"-n {name} link set lo up",
        )  # fmt: skip
        found.append(ClusterMachine(name, address(number), cores=1.0, slots={"emulate": 1.0}))
    try:
        yield found
    finally:
        for number in range(count):
            _ip(f"link del port{number}", f"netns del machine{number}")
        _ip("link del switch")


def _ip(*lines: str) -> None:
    for line in lines:
        subprocess.run(["ip", *line.split()], check=True)


class EmulatingAgent(ForkedAgent):
    """See ``StartedAgent``. ``machine``: path of its network namespace."""

    def __init__(self, ticket: Ticket, machine: str) -> None:
        self._machine = machine
        super().__init__(ticket, None)

    def _main(self) -> int:
        """Run the agent as the first process of namespaces of its own, below this one."""
        enter(self._machine)
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_NEW_MOUNTS | _NEW_PROCESSES | _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no namespaces of the agent's own")
        child = os.fork()
        if child:
            signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        libc.mount(None, b"/", None, _PRIVATE, None)
        libc.mount(b"proc", b"/proc", b"proc", 0, None)
        mount_own()
        return agent.main(f"/proc/self/fd/{outside}")


class EmulatingAgents(ForkedAgents):
    """See ``AgentStarter``. ``found``: the machines."""

    address = "namespaces"

    def __init__(self, found: list[ClusterMachine]) -> None:
        super().__init__()
        self._found = found

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        return {name: list(self._found) for name in cluster_of(plan).data_centers}

    def driver_address(self) -> str:
        return DRIVER

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        self.started.append(EmulatingAgent(ticket, f"/run/netns/{placement.machine.id}"))
        return self.started[-1]
