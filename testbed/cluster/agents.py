"""The driver's side of the agents of a run: it starts them, asks them, and compares their clocks throughout."""

from __future__ import annotations

import itertools
import os
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from testbed import errors
from testbed.cluster import control
from testbed.cluster.clocks import ClockComparison, clock_of_machine, correct_file, sample_of
from testbed.cluster.control import Content, ControlConnection, ControlLost
from testbed.cluster.files import ReceivedFiles
from testbed.cluster.machines import Placement, cluster_of, place, placed_on
from testbed.cluster.starting import AgentStarter, StartedAgent, Ticket
from testbed.errors import CapabilityError, NodeLost, RunFailed, TestbedError
from testbed.plan.model import Plan, to_json
from testbed.realtime.tls import new_pem, tls_of

START_LIMIT_S = 120.0
ANSWER_LIMIT_S = 60.0
_HANDSHAKE_LIMIT_S = 10.0
_PING_INTERVAL_S = 0.25
_FIRST_PINGS = 20
_TICK_S = 0.05
_QUIT_S = 5.0
_LEAST_SILENCE_S = 10.0
_REASON_S = 0.3  # after the end of a connection, until it is known how its agent has ended


@dataclass(slots=True)
class AgentHandle:
    """An agent of a run. ``lost``: why it is gone; empty while it is there."""

    placement: Placement
    started: StartedAgent
    files: ReceivedFiles
    connection: ControlConnection | None = None
    clock: ClockComparison = field(default_factory=ClockComparison)
    about: dict[str, Any] = field(default_factory=dict)
    offset_at_epoch_ns: int = 0
    heard_s: float = field(default_factory=time.monotonic)
    asked: int = 0  # questions without an answer: it may be busy
    lost: str = ""

    @property
    def name(self) -> str:
        return self.placement.name


class Agents:
    """All agents of a run, from the first connection to the end. ``events``: messages about nodes, and their agents."""

    def __init__(self, plan: Plan, directory: Path, starter: AgentStarter, epoch_ns: int) -> None:
        self._plan, self._directory, self._starter, self._epoch_ns = plan, directory, starter, epoch_ns
        self._secret, self._run_id = secrets.token_hex(32), secrets.token_hex(8)
        self._pem = new_pem() if plan.transport.tls else ""
        self._tls = tls_of(self._pem) if self._pem else None
        self._selector = selectors.DefaultSelector()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Content] = {}
        self._waiting: deque[tuple[str, ControlConnection]] = deque()  # handshakes that are done
        self._ping_due_s = 0.0
        self._silence_s = max(_LEAST_SILENCE_S, plan.timeouts.dead_after_s)
        self._all: list[AgentHandle] = []  # those that were lost included
        self.events: deque[tuple[AgentHandle, Content]] = deque()
        self._keys: dict[str, bytes] = {}  # of agents that have been started and have not connected
        self._listener = socket.create_server(("", 0))
        self._by_name: dict[str, AgentHandle] = {}
        self._placements = place(plan, starter.machines(plan))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept_all, name="agents", daemon=True).start()
        try:
            self.start_missing()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def __iter__(self) -> Iterator[AgentHandle]:
        return iter(self._by_name.values())

    def of_node(self, node: str) -> AgentHandle:
        """Return the agent on whose machine a node runs."""
        return next(agent for agent in self if node in agent.placement.ports)

    # ---- start --------------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """A random identifier of this run, in hexadecimal."""
        return self._run_id

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The machines of the run, and what is on them."""
        return self._placements

    def start_missing(self) -> None:
        """Start an agent on every machine that has none, and let it read what its nodes need.

        Raise ``NodeLost`` if no machine is there, ``CapabilityError`` if one is no place for this run.
        """
        missing = [place_ for place_ in self._placements if self._is_missing(place_)]
        if not missing:
            return
        if self._all:
            self._place_again()
            missing = [place_ for place_ in self._placements if self._is_missing(place_)]
        new = [self._start(placement) for placement in missing]
        self._await_hello(new)
        for _ in range(_FIRST_PINGS):
            for agent in new:
                self._ping(agent)
            self.turn(_TICK_S / 10)
        for agent in new:
            agent.offset_at_epoch_ns = round(agent.clock.offset_ns(time.monotonic_ns()))
        self.ask_all({agent.name: {"do": "prepare"} for agent in new}, START_LIMIT_S)

    def _is_missing(self, placement: Placement) -> bool:
        agent = self._by_name.get(placement.name)
        return agent is None or bool(agent.lost)

    def _place_again(self) -> None:
        """Give the nodes of lost machines to others of their data centre; to the same ones if there is no other."""
        if self._plan.back_end == "emulate":
            lost = next(agent.lost for agent in self if agent.lost)
            raise NodeLost(f"{lost}; the part of the emulated network that was there is gone")
        found = self._starter.machines(self._plan)
        gone = {agent.placement.machine.id for agent in self._all if agent.lost}
        used = {agent.placement.machine.id for agent in self if not agent.lost}
        again = {}
        for old in filter(self._is_missing, self._placements):
            free = [machine for machine in found[old.data_center] if machine.id not in used]
            if not free:
                raise NodeLost(f"{self._by_name[old.name].lost}; no other machine of {old.data_center} is there")
            machine = min(free, key=lambda each: each.id in gone)
            used.add(machine.id)
            wanted = cluster_of(self._plan).data_centers[old.data_center]
            again[old.name] = placed_on(machine, wanted, old.name, old.data_center, old.ports)
        self._placements = tuple(again.get(placement.name, placement) for placement in self._placements)

    def _start(self, placement: Placement) -> AgentHandle:
        key, port = secrets.token_bytes(control.KEY_BYTES), self._listener.getsockname()[1]
        self._keys[placement.name] = key
        ticket = Ticket(
            name=placement.name, driver=(self._starter.driver_address(), port), key=key.hex(), secret=self._secret,
            run_id=self._run_id, plan=to_json(self._plan).decode(), bind=placement.bind, nodes=tuple(placement.ports),
            working_directory=str(Path.cwd()), pem=self._pem,
            emulates=self._plan.back_end == "emulate",
        )  # fmt: skip
        files = ReceivedFiles(self._directory)
        agent = AgentHandle(placement, self._starter.start(placement, ticket), files)
        self._by_name[placement.name] = agent
        self._all.append(agent)
        return agent

    def _await_hello(self, new: Sequence[AgentHandle]) -> None:
        end_s = time.monotonic() + START_LIMIT_S
        while silent := [agent for agent in new if not agent.about]:
            for agent in silent:
                if reason := agent.lost or agent.started.lost():
                    raise CapabilityError(f"{self._place(agent)}: no agent has started there: {reason}{_end_of(agent)}")
            if time.monotonic() > end_s:
                text = f"its agent has not connected to {self._starter.driver_address()} within {START_LIMIT_S:g} s"
                raise CapabilityError(f"{self._place(silent[0])}: {text}{_end_of(silent[0])}")
            self.turn(_TICK_S)
        ours = self._sources_of_driver()
        for agent in new:
            theirs = agent.about["sources_sha256"]
            if ours is not None and theirs != ours:
                cure = "install this version there, with the same versions of torch and numpy"
                raise CapabilityError(f"{self._place(agent)}: has another version of the testbed, or of torch; {cure}")

    def _sources_of_driver(self) -> str | None:
        return next((agent.about["sources_sha256"] for agent in self if agent.about), None)

    @staticmethod
    def _place(agent: AgentHandle) -> str:
        return f"{agent.name} ({agent.placement.machine.address})"

    def _accept_all(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._handshake, args=[sock], daemon=True).start()

    def _handshake(self, sock: socket.socket) -> None:
        with suppress(OSError):  # a stranger
            self._waiting.append(control.accept(sock, self._keys, self._tls, _HANDSHAKE_LIMIT_S))

    # ---- messages -----------------------------------------------------------------------------------------------

    def ask(self, agent: str, limit_s: float = ANSWER_LIMIT_S, **question: Any) -> Any:
        """Return an agent's answer. Raise its error, or ``NodeLost`` if none comes."""
        return self.ask_all({agent: question}, limit_s)[agent]

    def ask_all(self, questions: Mapping[str, Content], limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """Return the answers of several agents, each to its own question, all at a time."""
        numbers = {name: self._send_question(self._by_name[name], question) for name, question in questions.items()}
        end_s = time.monotonic() + limit_s
        while open_ := [name for name, number in numbers.items() if number not in self._answers]:
            for name in open_:
                if lost := self._by_name[name].lost:
                    raise NodeLost(lost)
            if time.monotonic() > end_s:
                do = questions[open_[0]]["do"]
                raise NodeLost(f"{self._place(self._by_name[open_[0]])}: no answer to '{do}' within {limit_s:g} s")
            self.turn(_TICK_S)
        return {name: _value(self._answers.pop(number), name) for name, number in numbers.items()}

    def _send_question(self, agent: AgentHandle, question: Content) -> int:
        number = next(self._numbers)
        agent.asked += 1
        self.send(agent, {**question, "number": number})
        return number

    def send(self, agent: AgentHandle, message: Content) -> None:
        """Send a message; if the agent is gone, it is lost."""
        try:
            if agent.connection is not None and not agent.lost:
                agent.connection.send(message)
        except ControlLost as error:
            self._lose(agent, str(error))

    def watch(self, descriptor: int) -> None:
        """Let ``turn`` return early when ``descriptor``, an eventfd, is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        """Inverse of ``watch``."""
        self._selector.unregister(descriptor)

    def turn(self, timeout_s: float) -> None:
        """Handle messages that have arrived, or arrive within ``timeout_s``, and compare clocks when that is due."""
        self._admit()
        now_s = time.monotonic()
        if now_s >= self._ping_due_s:
            self._ping_due_s = now_s + _PING_INTERVAL_S
            for agent in self:
                self._ping(agent)
                self._check(agent, now_s)
        for key, _ in self._selector.select(min(timeout_s, max(0.0, self._ping_due_s - now_s))):
            if isinstance(key.data, AgentHandle):
                self._read(key.data)
            else:
                with suppress(BlockingIOError):
                    os.eventfd_read(key.fd)

    def _check(self, agent: AgentHandle, now_s: float) -> None:
        if agent.lost or agent.connection is None:
            return
        if reason := agent.started.lost():
            self._lose(agent, reason)
        elif not agent.asked and now_s - agent.heard_s > self._silence_s:
            self._lose(agent, f"no sign of life for {self._silence_s:g} s")

    def wait_s(self, duration_s: float) -> None:
        """Wait for that time, and serve the agents meanwhile."""
        end_s = time.monotonic() + duration_s
        while (left_s := end_s - time.monotonic()) > 0:
            self.turn(left_s)

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] in self._by_name:
            name, connection = self._waiting.popleft()
            agent = self._by_name[name]
            if agent.connection is None and not agent.lost:
                agent.connection, agent.heard_s = connection, time.monotonic()
                self._selector.register(connection, selectors.EVENT_READ, agent)
            else:
                connection.close()

    def _read(self, agent: AgentHandle) -> None:
        assert agent.connection is not None
        now_ns = time.monotonic_ns()
        agent.heard_s = now_ns / 1e9
        try:
            for message in agent.connection.receive():
                self._take(agent, message, now_ns)
        except (ControlLost, ValueError) as error:
            if agent.about:
                self._lose(agent, str(error))
            else:  # a stranger: the agent itself may still come
                self._selector.unregister(agent.connection)
                agent.connection.close()
                agent.connection = None

    def _take(self, agent: AgentHandle, message: Content, now_ns: int) -> None:
        if "pong" in message:
            agent.clock.add(sample_of(message["pong"], message["t2"], message["t3"], now_ns))
        elif "file" in message:
            agent.files.take(message)
        elif "number" in message:
            self._answers[message["number"]] = message
            agent.asked -= 1
        elif "hello" in message:
            agent.about = message["hello"]
            del self._keys[agent.name]
            agent.clock = ClockComparison(same=agent.about["clock_of"] == clock_of_machine())
        else:
            self.events.append((agent, message))

    def _ping(self, agent: AgentHandle) -> None:
        if agent.about:
            self.send(agent, {"do": "ping", "t1": time.monotonic_ns()})

    def _lose(self, agent: AgentHandle, why: str) -> None:
        if agent.lost:
            return
        reason, end_s = agent.started.lost(), time.monotonic() + _REASON_S
        while not reason and time.monotonic() < end_s:
            time.sleep(0.01)
            reason = agent.started.lost()
        reason = reason or why
        agent.lost = f"its machine {self._place(agent)} is lost: {reason}"
        if agent.connection is not None:
            self._selector.unregister(agent.connection)
            agent.connection.close()
        self.events.append((agent, {"lost": agent.lost}))

    # ---- the end ------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        for agent in self:
            self.send(agent, {"do": "quit"})
        end_s = time.monotonic() + _QUIT_S
        while any(agent.connection and not agent.lost for agent in self) and time.monotonic() < end_s:
            self.turn(_TICK_S)
        self._listener.close()
        for agent in self._all:
            if output := agent.started.output():
                with (self._directory / "host.log").open("a", encoding="utf-8") as log:
                    log.writelines(f"{agent.name}: {line}\n" for line in output.splitlines())
            agent.started.stop()
            if agent.connection is not None:
                agent.connection.close()
        self._selector.close()

    def correct_events(self) -> None:
        """Convert all times in the run's files of events to this machine's clock."""
        if all(agent.clock.same for agent in self._all):
            return
        of_node: dict[str, Callable[[float], float]] = {}
        corrections = []
        for agent in self._all:
            correction = agent.clock.correction(self._epoch_ns, agent.offset_at_epoch_ns)
            corrections.append((agent, correction))
            of_node |= dict.fromkeys(agent.placement.ports, correction)
        for agent, correction in corrections:
            for path in agent.files.events:
                correct_file(path, correction, of_node)

    def epoch_ns(self, agent: AgentHandle) -> int:
        """Return the run's start on an agent's clock."""
        return self._epoch_ns + agent.offset_at_epoch_ns

    def clock_s(self, agent: AgentHandle, t: float) -> float:
        """Return a time of the run, in s by this machine's clock, on an agent's clock as it is known now."""
        at_ns = self._epoch_ns + round(t * 1e9)
        return (at_ns + agent.clock.offset_ns(time.monotonic_ns())) / 1e9

    def now(self, agent: AgentHandle, t: float) -> float:
        """Return a time of an agent's node, in s of the run, by this machine's clock as it is known now."""
        offset_ns = agent.clock.offset_ns(self._epoch_ns + round(t * 1e9))
        return t + (agent.offset_at_epoch_ns - offset_ns) / 1e9

    def report(self) -> list[dict[str, Any]]:
        """Return what the manifest says of each machine."""
        return [
            {
                "name": agent.name, "data_center": agent.placement.data_center,
                "address": agent.placement.machine.address, "id": agent.placement.machine.id,
                "advertised": agent.placement.advertise, "nodes": sorted(agent.placement.ports),
                **{key: value for key, value in agent.about.items() if key != "clock_of"},
                "clock": agent.clock.report(), "lost": agent.lost,
            }
            for agent in self._all
        ]  # fmt: skip


def _value(answer: Content, agent: str) -> Any:
    if "error" not in answer:
        return answer["reply"]
    found = getattr(errors, answer["of"], RunFailed)
    kind = found if isinstance(found, type) and issubclass(found, TestbedError) else RunFailed
    error = kind(f"{agent}: {answer['error']}")
    for note in answer["notes"]:
        error.add_note(note)
    raise error


def _end_of(agent: AgentHandle) -> str:
    lines = agent.started.output().strip().splitlines()
    return f": {lines[-1]}" if lines else ""
