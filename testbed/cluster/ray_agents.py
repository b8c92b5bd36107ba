"""Agents on the machines of a Ray cluster: one actor on each of them starts the agent as its child.

Ray carries the ticket, and with it the run's secrets, so where others can listen it has to be encrypted
(``RAY_USE_TLS``). An actor ends with the driver, with its raylet, and with its machine; the agent ends with the actor.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from testbed.cluster import connection
from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import SLOT, Placement, cluster_of
from testbed.cluster.starting import AgentProcess, StartedAgent, Ticket
from testbed.plan.model import Plan

_STOP_S = 5.0


class AgentActor:
    """Runs on the agent's machine: its parent."""

    def __init__(self, ticket: Ticket) -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray raises the niceness of its workers
        path = os.pathsep.join(place for place in sys.path if place)  # where Ray has unpacked this testbed
        self._agent = AgentProcess(ticket, {"PYTHONPATH": path})

    def wait(self) -> str:
        """Return how the agent has ended, when it has."""
        self._agent.process.wait()
        return self._agent.lost()

    def output(self) -> str:
        """Return what the agent has written to its standard error."""
        return self._agent.output()

    def stop(self) -> None:
        """End the agent and remove what it leaves."""
        self._agent.stop()


@dataclass(slots=True)
class RayAgent:
    """See ``StartedAgent``."""

    actor: Any
    ended: Any  # future of ``AgentActor.wait``
    _reason: str = field(default="")

    def lost(self) -> str:
        ray = connection.import_ray()
        if not self._reason:
            ready, _ = ray.wait([self.ended], timeout=0)
            if ready:
                try:
                    self._reason = ray.get(self.ended)
                except ray.exceptions.RayError as error:
                    self._reason = f"Ray has lost it ({str(error).strip().splitlines()[-1].strip()})"
        return self._reason

    def output(self) -> str:
        return str(self._ask("output") or "")

    def stop(self) -> None:
        self._ask("stop")
        connection.import_ray().kill(self.actor)

    def _ask(self, method: str) -> Any:
        ray = connection.import_ray()
        try:
            return ray.get(getattr(self.actor, method).remote(), timeout=_STOP_S)
        except ray.exceptions.RayError:  # it is gone, and what it had started with it
            return None


class RayAgents:
    """See ``AgentStarter``."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> Self:
        connection.connect(self.address)
        return self

    def __exit__(self, *_: object) -> None:
        connection.import_ray().shutdown()  # what this process has started there is ended

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        there, found = connection.machines(), {}
        if plan.back_end == "emulate":
            there = [machine for machine in there if machine.slots.get(SLOT, 0) >= 1]
        for name, wanted in cluster_of(plan).data_centers.items():
            key, _, value = wanted.label.partition("=")
            found[name] = [machine for machine in there if not key or machine.labels.get(key) == value]
        self._wanted_gpus = {node.name for node in plan.nodes if node.device.kind != "cpu"}
        return found

    def driver_address(self) -> str:
        return str(connection.import_ray().util.get_node_ip_address())

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        ray = connection.import_ray()
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(placement.machine.id, soft=False)
        gpus = min(len(self._wanted_gpus & placement.ports.keys()), placement.machine.gpus)
        made = ray.remote(AgentActor).options(
            num_cpus=1,
            num_gpus=gpus,
            scheduling_strategy=where,
            max_concurrency=4,
            max_restarts=0,
            resources={SLOT: 1} if ticket.emulates else {},
        )
        actor = made.remote(ticket)
        return RayAgent(actor, actor.wait.remote())
