"""The nodes of a run on several machines, for ``testbed.realtime.fleet``: agents start and watch them."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from testbed.cluster.agent_connections import AgentHandle
from testbed.cluster.agents import Agents
from testbed.cluster.files import checkpoint_parts
from testbed.errors import NodeLost, RunFailed
from testbed.plan.model import Plan
from testbed.realtime.node_processes import Line, ProcessEnd
from testbed.realtime.sockets import Address

_END_LIMIT_S = 30.0  # that an agent has to end its nodes and to send what they have written
_TIMES = ("t", "t0", "snapshot_t")


class AgentProcesses:
    """See ``testbed.realtime.node_processes.Processes``. One attempt of a run; ``number`` tells it from the others.

    ``checkpoint``: that it begins with.
    """

    def __init__(self, plan: Plan, agents: Agents, number: int, wake: int, checkpoint: Path | None) -> None:
        self._plan, self._agents, self._number, self._wake = plan, agents, number, wake
        self._connections = agents.connections
        self._running: dict[str, AgentHandle] = {}
        self._why_lost: dict[str, str] = {}  # by node
        agents.start_missing()
        self._connections.events.clear()
        self._connections.watch(wake)
        try:
            self._begin_all(checkpoint)
        except BaseException:  # an agent is lost: another attempt may follow
            self.__exit__()
            raise

    def _begin_all(self, checkpoint: Path | None) -> None:
        ports = self._connections.ask_all(
            {each.name: {"do": "listen", "ports": dict(each.placement.ports)} for each in self._agents}
        )
        if checkpoint is not None:
            for agent in self._agents:
                for part in checkpoint_parts(checkpoint, frozenset(agent.placement.ports)):
                    self._connections.ask(agent.name, do="put", part=part)
        begin = {"do": "begin", "attempt": self._number}
        self._connections.ask_all(
            {
                each.name: {**begin, "epoch_ns": each.epoch_there_ns, "addresses": self._addresses(each, ports)}
                for each in self._agents
            }
        )

    def _addresses(self, agent: AgentHandle, ports: dict[str, dict[str, int]]) -> dict[str, Address]:
        """Return where the nodes of one machine reach all nodes."""
        data_center = agent.placement.data_center
        return {
            node: (other.placement.seen_from(data_center), port)
            for other in self._agents
            for node, port in ports[other.name].items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.unwatch(self._wake)
        there = [agent for agent in self._agents if not agent.lost]
        with suppress(NodeLost):  # one more is lost: what it has sent is here
            self._connections.ask_all({agent.name: {"do": "end"} for agent in there}, _END_LIMIT_S)
        self._running.clear()

    def __contains__(self, node: str) -> bool:
        return node in self._running

    def __len__(self) -> int:
        return len(self._running)

    def start(self, nodes: Iterable[str], training_since_s: float | None = None) -> None:
        by_agent: dict[str, list[str]] = {}
        for node in nodes:
            agent = self._agents.of_node(node)
            by_agent.setdefault(agent.name, []).append(node)
            self._running[node] = agent
        self._connections.ask_all(
            {name: {"do": "start", "nodes": names, "since_s": training_since_s} for name, names in by_agent.items()}
        )

    def wait(self, timeout_s: float) -> Iterator[Line | ProcessEnd]:
        if not self._connections.events:
            self._connections.turn(timeout_s)
        while self._connections.events:
            agent, message = self._connections.events.popleft()
            if "line" in message:
                yield self._timed(agent, message["line"])
            elif "ended" in message and message["ended"] in self._running:
                del self._running[message["ended"]]
                yield ProcessEnd(message["ended"], message["code"], message["report"], message["killer"])
            elif "broken" in message:
                raise RunFailed(message["broken"])
            elif "lost" in message:
                for node in [node for node, at in self._running.items() if at is agent]:
                    del self._running[node]
                    self._why_lost[node] = message["lost"]
                    yield ProcessEnd(node, -signal.SIGKILL, {})

    def _timed(self, agent: AgentHandle, line: Line) -> Line:
        return {**line, **{name: agent.run_time_s(line[name]) for name in _TIMES if name in line}}

    def send_signal(self, node: str, number: signal.Signals) -> bool:
        agent = self._running.get(node)
        if agent is not None:
            self._connections.send(agent, {"do": "signal", "nodes": [node], "number": int(number)})
        return agent is not None

    def send_signal_to_all(self, number: signal.Signals) -> None:
        for agent in self._agents:
            nodes = [node for node, at in self._running.items() if at is agent]
            if nodes:
                self._connections.send(agent, {"do": "signal", "nodes": nodes, "number": int(number)})

    def explain(self, node: str, code: int) -> str:
        if node in self._why_lost:
            return self._why_lost[node]
        return str(self._asked(node, do="explain", node=node, code=code) or "")

    def ask_for_stacks(self, node: str) -> bool:
        return node in self._running and bool(self._asked(node, do="ask_for_stacks", node=node))

    def hung(self, node: str, why: str) -> str:
        return str(self._asked(node, do="hung", node=node, why=why) or "")

    def _asked(self, at: str, **question: Any) -> Any:
        try:
            return self._connections.ask(self._agents.of_node(at).name, **question)
        except NodeLost:
            return None
