"""Agents on the machines of a Ray cluster. Each agent is the child of a Ray actor, through which the driver asks it.

Ray transfers the ticket, which contains the run's secrets. So on networks where others can listen, Ray's connections
must be encrypted (``RAY_USE_TLS``). An actor ends when the driver, its raylet or its machine ends; the agent ends with
its actor.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any, Self

from testbed.cluster import connection
from testbed.cluster.agent_process import AgentProcess, Answer, StartedAgent, Ticket
from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import Placement, cluster_of
from testbed.plan.model import Plan

_LIMIT_S = 60.0
_STOP_S = 10.0
_THREADS = 8  # of an actor, as the driver asks questions, and for events and the clock, at the same time


class AgentActor:
    """The parent of an agent, on its machine. It does not fork nodes itself, as it has threads of Ray."""

    def __init__(self, ticket: Ticket) -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray raises the niceness of its workers
        path = os.pathsep.join(place for place in sys.path if place)  # where Ray has unpacked this testbed
        self._agent = AgentProcess(ticket, {"PYTHONPATH": path})

    def call(self, question: str, arguments: tuple[Any, ...], limit_s: float) -> Answer:
        return self._agent.call(question, *arguments, limit_s=limit_s)

    def clock_ns(self) -> int:
        return time.monotonic_ns()  # the agent, on the same machine, has the same clock

    def events(self, wait_s: float) -> list[Any]:
        return self._agent.events(wait_s)

    def lost(self) -> str:
        return self._agent.lost()

    def output(self) -> str:
        return self._agent.output()

    def stop(self) -> None:
        self._agent.stop()


class RayAgent:
    """See ``StartedAgent``. ``actor``: a handle of an ``AgentActor``."""

    def __init__(self, actor: Any) -> None:
        self._ray = connection.import_ray()
        self._actor = actor
        self._reason = ""

    def call(self, question: str, *arguments: Any, limit_s: float) -> Answer:
        answer: Answer = self._got(self._actor.call.remote(question, arguments, limit_s), limit_s)
        return answer

    def clock_ns(self, limit_s: float) -> int:
        return int(self._got(self._actor.clock_ns.remote(), limit_s))

    def events(self, wait_s: float) -> list[Any]:
        return list(self._got(self._actor.events.remote(wait_s), _LIMIT_S))

    def _got(self, reference: Any, limit_s: float) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=limit_s)
        except errors.GetTimeoutError as error:
            raise ConnectionError(f"no sign of life for {limit_s:g} s") from error
        except errors.RayTaskError as error:
            raise ConnectionError(str(error.cause)) from error
        except errors.RayError as error:
            self._reason = f"Ray has lost it ({str(error).strip().splitlines()[-1].strip()})"
            raise ConnectionError(self._reason) from error

    def lost(self) -> str:
        return self._reason or str(self._asked(self._actor.lost) or "")

    def output(self) -> str:
        return str(self._asked(self._actor.output) or "")

    def stop(self) -> None:
        self._asked(self._actor.stop)
        self._ray.kill(self._actor)

    def _asked(self, method: Any) -> Any:
        try:
            return self._got(method.remote(), _STOP_S)
        except ConnectionError:  # the actor is gone, and its agent with it
            return None


class RayAgents:
    """Starts agents on the machines of a Ray cluster; see ``AgentStarter``."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> Self:
        connection.connect(self.address)
        return self

    def __exit__(self, *_: object) -> None:
        connection.import_ray().shutdown()  # ends everything that this process has started in the cluster

    def machines(self, plan: Plan) -> dict[str, list[ClusterMachine]]:
        there = connection.machines()
        found = {}
        for name, wanted in cluster_of(plan).data_centers.items():
            key, _, value = wanted.label.partition("=")
            found[name] = [machine for machine in there if not key or machine.labels.get(key) == value]
        self._wanted_gpus = {node.name for node in plan.nodes if node.device.kind != "cpu"}
        return found

    def start(self, placement: Placement, ticket: Ticket) -> StartedAgent:
        ray = connection.import_ray()
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(placement.machine.id, soft=False)
        gpus = min(len(self._wanted_gpus & placement.ports.keys()), placement.machine.gpus)
        made = ray.remote(AgentActor).options(
            num_cpus=1, num_gpus=gpus, scheduling_strategy=where, max_concurrency=_THREADS, max_restarts=0
        )
        return RayAgent(made.remote(ticket))
