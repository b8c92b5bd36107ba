"""The nodes of a run on several machines, as ``testbed.realtime.fleet`` uses them: agents start and watch them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from testbed.cluster.agents import AgentHandle, AgentLost, Agents
from testbed.cluster.files import checkpoint_files
from testbed.errors import NodeLost
from testbed.processes.child import Line
from testbed.realtime.node_processes import ProcessEnd
from testbed.realtime.sockets import Address

_END_LIMIT_S = 30.0  # time for an agent to end its nodes and to send what they have written
_TIMES = ("t", "t0", "snapshot_t")


class AgentProcesses:
    """The nodes of one attempt of a run; see ``testbed.realtime.node_processes.Processes``.

    ``number``: the number of the attempt. ``checkpoint``: the checkpoint with which it begins. ``wake``: an eventfd,
    which ``wait`` reads; it does not end ``wait`` early, as no wait here is long.
    """

    def __init__(self, agents: Agents, number: int, wake: int, checkpoint: Path | None) -> None:
        self._agents = agents
        self._number = number
        self._wake = wake
        self._running: dict[str, AgentHandle] = {}
        self._why_lost: dict[str, str] = {}  # by node
        agents.start_missing()
        agents.events.clear()
        try:
            self._begin_all(checkpoint)
        except BaseException:  # such as NodeLost, after which another attempt may follow
            self.__exit__()
            raise

    def _begin_all(self, checkpoint: Path | None) -> None:
        ports = self._agents.ask_all({each.name: ("listen", dict(each.placement.ports)) for each in self._agents})
        if checkpoint is not None:
            for agent in self._agents:
                for piece in checkpoint_files(checkpoint, frozenset(agent.placement.ports)):
                    self._agents.ask(agent, "put", piece)
        self._agents.ask_all(
            {
                each.name: ("begin", self._number, each.epoch_there_ns, self._addresses(each, ports))
                for each in self._agents
            }
        )

    def _addresses(self, agent: AgentHandle, ports: dict[str, dict[str, int]]) -> dict[str, Address]:
        """Return the addresses at which the nodes of an agent's machine reach all nodes."""
        data_center = agent.placement.data_center
        return {
            node: (other.placement.seen_from(data_center), port)
            for other in self._agents
            for node, port in ports[other.name].items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        there = [agent for agent in self._agents if not agent.lost]
        with suppress(NodeLost):  # if another agent is lost, the driver has what it sent before
            self._agents.ask_all({agent.name: ("end",) for agent in there}, _END_LIMIT_S)
        self._agents.take_all()
        self._running.clear()

    def __contains__(self, node: str) -> bool:
        return node in self._running

    def __len__(self) -> int:
        return len(self._running)

    def start(self, nodes: Iterable[str], training_since_s: float | None = None) -> None:
        for node in (names := list(nodes)):
            self._running[node] = self._agents.of_node(node)
        self._agents.ask_all({name: ("start", own, training_since_s) for name, own in self._by_agent(names).items()})

    def _by_agent(self, nodes: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for node in nodes:
            found.setdefault(self._running[node].name, []).append(node)
        return found

    def wait(self, timeout_s: float) -> Iterator[Line | ProcessEnd]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if not self._agents.events:
            self._agents.turn(timeout_s)
        while self._agents.events:
            agent, event = self._agents.events.popleft()
            if isinstance(event, AgentLost):
                for node in [node for node, at in self._running.items() if at is agent]:
                    del self._running[node]
                    self._why_lost[node] = event.why
                    yield ProcessEnd(node, -signal.SIGKILL, {})
            elif not isinstance(event, ProcessEnd):
                yield {**event, **{name: agent.run_time_s(event[name]) for name in _TIMES if name in event}}
            elif event.node in self._running:
                del self._running[event.node]
                yield event

    def send_signal(self, node: str, number: signal.Signals) -> bool:
        running = node in self._running
        if running:
            self._asked(node, "signal", [node], number)
        return running

    def send_signal_to_all(self, number: signal.Signals) -> None:
        for nodes in self._by_agent(self._running).values():
            self._asked(nodes[0], "signal", nodes, number)

    def explain(self, node: str, code: int) -> str:
        return self._why_lost.get(node) or str(self._asked(node, "explain", node, code) or "")

    def ask_for_stacks(self, node: str) -> bool:
        return node in self._running and bool(self._asked(node, "ask_for_stacks", node))

    def hung(self, node: str, why: str) -> str:
        return str(self._asked(node, "hung", node, why) or "")

    def _asked(self, at: str, question: str, *arguments: Any) -> Any:
        try:
            return self._agents.ask(self._agents.of_node(at), question, *arguments)
        except NodeLost:
            return None
