"""The driver's side of the agents of a run: it starts one on every machine, and another where one is lost."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from testbed.cluster import control
from testbed.cluster.agent_connections import TICK_S, AgentConnections, AgentHandle
from testbed.cluster.clocks import correct_file
from testbed.cluster.files import ReceivedFiles
from testbed.cluster.machines import Placement, cluster_of, place, placed_on
from testbed.cluster.starting import AgentStarter, Ticket
from testbed.errors import CapabilityError, NodeLost
from testbed.plan.model import Plan, to_json
from testbed.realtime.tls import new_pem, tls_of

START_LIMIT_S = 120.0
_FIRST_PINGS = 20
_LEAST_SILENCE_S = 10.0


class Agents:
    """All agents of a run, from the first connection to the end.

    run_id       a random identifier of this run, in hexadecimal
    placements   the machines of the run, and what is on them
    connections  to the agents
    """

    def __init__(self, plan: Plan, directory: Path, starter: AgentStarter, epoch_ns: int) -> None:
        self._plan, self._directory, self._starter, self._epoch_ns = plan, directory, starter, epoch_ns
        self.placements: tuple[Placement, ...] = place(plan, starter.machines(plan))
        self._secret, self.run_id = secrets.token_hex(32), secrets.token_hex(8)
        self._pem = new_pem() if plan.transport.tls else ""
        tls = tls_of(self._pem) if self._pem else None
        self.connections = AgentConnections(tls, max(_LEAST_SILENCE_S, plan.timeouts.dead_after_s))
        self._all: list[AgentHandle] = []  # those that were lost included
        self._stopped = False

    def __enter__(self) -> Self:
        try:
            self.start_missing()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[AgentHandle]:
        return iter(self.connections.by_name.values())

    def of_node(self, node: str) -> AgentHandle:
        return next(agent for agent in self if node in agent.placement.ports)

    # ---- start --------------------------------------------------------------------------------------------------

    def start_missing(self) -> None:
        """Start an agent on every machine that has none, and let it read what its nodes need.

        Raise ``NodeLost`` if no machine is there, ``CapabilityError`` if one is no place for this run.
        """
        missing = self._missing()
        if not missing:
            return
        if self._all:
            self._place_again(missing)
            missing = self._missing()
        new = [self._start(placement) for placement in missing]
        self._await_hello(new)
        for _ in range(_FIRST_PINGS):
            for agent in new:
                self.connections.ping(agent)
            self.connections.turn(TICK_S / 10)
        self.connections.ask_all({agent.name: {"do": "prepare"} for agent in new}, START_LIMIT_S)
        for agent in new:  # whose answers to the pings have come before that, however long they take
            agent.offset_at_epoch_ns = round(agent.clock.offset_ns(time.monotonic_ns()))

    def _missing(self) -> list[Placement]:
        there = {agent.name for agent in self if not agent.lost}
        return [placement for placement in self.placements if placement.name not in there]

    def _place_again(self, missing: Sequence[Placement]) -> None:
        """Give the nodes of lost machines to others of their data centre; to the same ones if there is no other."""
        why = {agent.name: agent.lost for agent in self if agent.lost}
        if self._plan.back_end == "emulate":
            raise NodeLost(f"{why[missing[0].name]}; the part of the emulated network that was there is gone")
        found = self._starter.machines(self._plan)
        gone = {agent.placement.machine.id for agent in self._all if agent.lost}
        used = {agent.placement.machine.id for agent in self if not agent.lost}
        again = {}
        for old in missing:
            free = [machine for machine in found[old.data_center] if machine.id not in used]
            if not free:
                raise NodeLost(f"{why[old.name]}; no other machine of {old.data_center} is there")
            machine = min(free, key=lambda each: each.id in gone)
            used.add(machine.id)
            wanted = cluster_of(self._plan).data_centers[old.data_center]
            again[old.name] = placed_on(machine, wanted, old.name, old.data_center, old.ports)
        self.placements = tuple(again.get(placement.name, placement) for placement in self.placements)

    def _start(self, placement: Placement) -> AgentHandle:
        key = secrets.token_bytes(control.KEY_BYTES)
        self.connections.expect(placement.name, key)
        ticket = Ticket(
            name=placement.name, driver=(self._starter.driver_address(), self.connections.port), key=key.hex(),
            secret=self._secret, run_id=self.run_id, plan=to_json(self._plan).decode(), bind=placement.bind,
            nodes=tuple(placement.ports), working_directory=str(Path.cwd()), pem=self._pem,
            emulates=self._plan.back_end == "emulate",
        )  # fmt: skip
        files = ReceivedFiles(self._directory)
        agent = AgentHandle(placement, self._starter.start(placement, ticket), files, self._epoch_ns)
        self.connections.by_name[placement.name] = agent
        self._all.append(agent)
        return agent

    def _await_hello(self, new: Sequence[AgentHandle]) -> None:
        end_s = time.monotonic() + START_LIMIT_S
        while silent := [agent for agent in new if not agent.about]:
            for agent in silent:
                if reason := agent.lost or agent.started.lost():
                    raise CapabilityError(f"{agent.place}: no agent has started there: {reason}{agent.last_output()}")
            if time.monotonic() > end_s:
                text = f"its agent has not connected to {self._starter.driver_address()} within {START_LIMIT_S:g} s"
                raise CapabilityError(f"{silent[0].place}: {text}{silent[0].last_output()}")
            self.connections.turn(TICK_S)
        ours = next(agent.about["sources_sha256"] for agent in self if agent.about)
        for agent in new:
            if agent.about["sources_sha256"] != ours:
                cure = "install this version there, with the same versions of torch and numpy"
                raise CapabilityError(f"{agent.place}: has another version of the testbed, or of torch; {cure}")

    # ---- the end ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End all agents, and take what they still send. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self.connections.quit()
        for agent in self._all:
            if output := agent.started.output():
                with (self._directory / "host.log").open("a", encoding="utf-8") as log:
                    log.writelines(f"{agent.name}: {line}\n" for line in output.splitlines())
            agent.started.stop()
        self.connections.close()

    def correct_events(self) -> None:
        """Convert all times in the run's files of events to this machine's clock, once no agent sends any more."""
        if all(agent.clock.same for agent in self._all):
            return
        of_node: dict[str, Callable[[float], float]] = {}
        corrections = []
        for agent in self._all:
            correction = agent.correction()
            corrections.append((agent, correction))
            of_node |= dict.fromkeys(agent.placement.ports, correction)
        for agent, correction in corrections:
            for path in agent.files.events:
                correct_file(path, correction, of_node)

    def report(self) -> list[dict[str, Any]]:
        """Return what the manifest says of each machine."""
        return [agent.report() for agent in self._all]
