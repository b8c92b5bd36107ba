"""Agents on the machines of a Ray cluster: an actor on each of them has the agent as its child, and is asked by Ray.

Ray carries the ticket, and with it the run's secrets, so where others can listen it has to be encrypted
(``RAY_USE_TLS``). An actor ends with the driver, with its raylet, and with its machine; the agent ends with the actor.
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
_THREADS = 8  # of an actor: its questions, its events and its clock are asked for at the same time


class AgentActor:
    """Runs on the agent's machine: its parent. A process with Ray's threads must not fork nodes itself."""

    def __init__(self, ticket: Ticket) -> None:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)  # Ray raises the niceness of its workers
        path = os.pathsep.join(place for place in sys.path if place)  # where Ray has unpacked this testbed
        self._agent = AgentProcess(ticket, {"PYTHONPATH": path})

    def call(self, question: str, arguments: tuple[Any, ...], limit_s: float) -> Answer:
        return self._agent.call(question, *arguments, limit_s=limit_s)

    def clock_ns(self) -> int:
        return time.monotonic_ns()  # the agent's own

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
        except ConnectionError:  # it is gone, and what it had started with it
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
