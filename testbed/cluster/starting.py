"""How agents are started, on this machine or on those of a cluster, and the ticket that each of them is given."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Protocol, Self

from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import Placement
from testbed.plan.model import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What an agent needs to know before it can connect; it holds the run's secrets.

    driver     host and port at which the driver listens
    key        of the control connection, in hexadecimal; ``secret``: of the run
    pem        key and certificate of the run, if it has TLS
    emulates   whether the agent makes a part of an emulated network, in a sandbox
    """

    name: str
    driver: tuple[str, int]
    key: str = field(repr=False)
    secret: str = field(repr=False)
    run_id: str
    plan: str
    bind: str
    nodes: tuple[str, ...]
    working_directory: str
    emulates: bool = False
    pem: str = field(default="", repr=False)


class StartedAgent(Protocol):
    """An agent that has been started somewhere."""

    def lost(self) -> str:
        """Return why it cannot be running any more; empty while it may be."""

    def output(self) -> str:
        """Return what it has written to its standard error, as far as that can be known."""

    def stop(self) -> None:
        """End it, if it still runs, and remove what it leaves."""


class AgentStarter(Protocol):
    """Starts agents: on this machine, or on those of a cluster. ``address``: of the cluster."""

    address: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        """Return the machines for each data centre, in a fixed order."""

    def driver_address(self) -> str:
        """Return the address at which agents reach the driver."""

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        """Start an agent; return at once."""


def line_of(ticket: Ticket) -> bytes:
    """Return a ticket as an agent reads it."""
    return json.dumps(asdict(ticket)).encode() + b"\n"
