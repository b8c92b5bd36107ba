"""The agents of a run as the driver knows them, and its connections to them: questions, signs of life, clocks."""

from __future__ import annotations

import itertools
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from testbed import errors
from testbed.cluster import control
from testbed.cluster.clocks import ClockComparison, clock_of_machine, sample_of
from testbed.cluster.control import Content, ControlConnection, ControlLost
from testbed.cluster.files import ReceivedFiles
from testbed.cluster.machines import Placement
from testbed.cluster.starting import StartedAgent
from testbed.errors import NodeLost, RunFailed, TestbedError
from testbed.realtime.tls import Tls

ANSWER_LIMIT_S = 60.0
TICK_S = 0.05
_HANDSHAKE_LIMIT_S = 10.0
_PAUSE_S = 0.1  # of the listener, when the machine has no descriptors or threads left
_PING_INTERVAL_S = 0.25
_QUIT_S = 5.0
_REASON_S = 0.3  # after the end of a connection, until it is known how its agent has ended


@dataclass(slots=True, eq=False)
class AgentHandle:
    """An agent of a run.

    epoch_ns            the run's start, on the driver's clock
    about               the machine, as the agent describes it; empty until it has
    offset_at_epoch_ns  of its clock, as known when its first nodes start
    heard_s             when its last message came
    unanswered          questions without an answer: it may be busy
    lost                why it is gone; empty while it is there
    """

    placement: Placement
    started: StartedAgent
    files: ReceivedFiles
    epoch_ns: int
    connection: ControlConnection | None = None
    clock: ClockComparison = field(default_factory=ClockComparison)
    about: dict[str, Any] = field(default_factory=dict)
    offset_at_epoch_ns: int = 0
    heard_s: float = field(default_factory=time.monotonic)
    unanswered: int = 0
    lost: str = ""

    @property
    def name(self) -> str:
        return self.placement.name

    @property
    def place(self) -> str:
        """Its name and address, for messages."""
        return f"{self.name} ({self.placement.machine.address})"

    def last_output(self) -> str:
        """Return the last line that it has written, after a colon; empty if there is none."""
        lines = self.started.output().strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    # ---- times --------------------------------------------------------------------------------------------------

    @property
    def epoch_there_ns(self) -> int:
        """The run's start, on the agent's clock."""
        return self.epoch_ns + self.offset_at_epoch_ns

    def clock_there_s(self, t: float) -> float:
        """Return a time of the run, in s by the driver's clock, on the agent's clock as it is known now."""
        return (self.epoch_ns + round(t * 1e9) + self.clock.offset_ns(time.monotonic_ns())) / 1e9

    def run_time_s(self, t: float) -> float:
        """Return a time of the agent's node, in s of the run, by the driver's clock as the offset is known now."""
        offset_ns = self.clock.offset_ns(self.epoch_ns + round(t * 1e9))
        return t + (self.offset_at_epoch_ns - offset_ns) / 1e9

    def correction(self) -> Callable[[float], float]:
        """Return what converts times of events there, in s of the run, to the driver's clock."""
        return self.clock.correction(self.epoch_ns, self.offset_at_epoch_ns)

    def report(self) -> dict[str, Any]:
        """Return what the manifest says of its machine."""
        return {
            "name": self.name, "data_center": self.placement.data_center, "address": self.placement.machine.address,
            "id": self.placement.machine.id, "advertised": self.placement.advertise,
            "nodes": sorted(self.placement.ports),
            **{key: value for key, value in self.about.items() if key != "clock_of"},
            "clock": self.clock.report(), "lost": self.lost,
        }  # fmt: skip


class AgentConnections:
    """One per run. ``silence_s``: an agent that is not busy is lost when it has said nothing for so long.

    by_name  the newest agent of each placement; lost ones until another is ``expect``\\ ed in their place
    events   messages about nodes, and their agents
    """

    def __init__(self, tls: Tls | None, silence_s: float) -> None:
        self._tls, self._silence_s = tls, silence_s
        self.by_name: dict[str, AgentHandle] = {}
        self.events: deque[tuple[AgentHandle, Content]] = deque()
        self._keys: dict[str, bytes] = {}  # of agents that have been started and have not connected
        self._selector = selectors.DefaultSelector()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Content] = {}
        self._waiting: deque[tuple[str, ControlConnection, Content]] = deque()  # agents, with their first messages
        self._ping_due_s = 0.0
        self._listener = socket.create_server(("", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept_all, name="agents", daemon=True).start()

    def expect(self, name: str, key: bytes) -> None:
        """Let an agent of that name connect who has this key."""
        self._keys[name] = key

    def _accept_all(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
                threading.Thread(target=self._handshake, args=[sock], daemon=True).start()
            except (OSError, RuntimeError):  # closed; the caller has gone; or there are no descriptors or threads left
                if self._listener.fileno() < 0:
                    return
                time.sleep(_PAUSE_S)

    def _handshake(self, sock: socket.socket) -> None:
        with suppress(OSError):  # a stranger
            self._waiting.append(control.accept(sock, self._keys, self._tls, _HANDSHAKE_LIMIT_S))

    # ---- questions and messages ---------------------------------------------------------------------------------

    def ask(self, agent: str, limit_s: float = ANSWER_LIMIT_S, **question: Any) -> Any:
        """Return an agent's answer. Raise its error, or ``NodeLost`` if none comes."""
        return self.ask_all({agent: question}, limit_s)[agent]

    def ask_all(self, questions: Mapping[str, Content], limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """Return the answers of several agents, each to its own question, all at a time."""
        numbers = {name: self._send_question(self.by_name[name], question) for name, question in questions.items()}
        end_s = time.monotonic() + limit_s
        while open_ := [name for name, number in numbers.items() if number not in self._answers]:
            for name in open_:
                if lost := self.by_name[name].lost:
                    raise NodeLost(lost)
            if time.monotonic() > end_s:
                do = questions[open_[0]]["do"]
                raise NodeLost(f"{self.by_name[open_[0]].place}: no answer to '{do}' within {limit_s:g} s")
            self.turn(TICK_S)
        return {name: _value(self._answers.pop(number), name) for name, number in numbers.items()}

    def _send_question(self, agent: AgentHandle, question: Content) -> int:
        number = next(self._numbers)
        agent.unanswered += 1
        self.send(agent, {**question, "number": number})
        return number

    def send(self, agent: AgentHandle, message: Content) -> None:
        """Send a message; if the agent is gone, it is lost."""
        try:
            if agent.connection is not None and not agent.lost:
                agent.connection.send(message)
        except ControlLost as error:
            self._lose(agent, str(error))

    def ping(self, agent: AgentHandle) -> None:
        """Ask an agent that has described its machine for a sign of life and a sample of its clock."""
        if agent.about:
            self.send(agent, {"do": "ping", "t1": time.monotonic_ns()})

    # ---- what arrives -------------------------------------------------------------------------------------------

    def watch(self, descriptor: int) -> None:
        """Let ``turn`` return early when ``descriptor``, an eventfd, is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)

    def turn(self, timeout_s: float) -> None:
        """Handle messages that have arrived, or arrive within ``timeout_s``, and compare clocks when that is due."""
        self._admit()
        now_s = time.monotonic()
        if now_s >= self._ping_due_s:
            self._ping_due_s = now_s + _PING_INTERVAL_S
            for agent in self.by_name.values():
                self.ping(agent)
                self._check(agent, now_s)
        for key, _ in self._selector.select(min(timeout_s, max(0.0, self._ping_due_s - now_s))):
            if isinstance(key.data, AgentHandle):
                self._read(key.data)
            else:
                with suppress(BlockingIOError):
                    os.eventfd_read(key.fd)

    def wait_s(self, duration_s: float) -> None:
        """Wait for that time, and serve the agents meanwhile."""
        end_s = time.monotonic() + duration_s
        while (left_s := end_s - time.monotonic()) > 0:
            self.turn(left_s)

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] in self.by_name:
            name, connection, hello = self._waiting.popleft()
            agent = self.by_name[name]
            if agent.connection is None and not agent.lost:
                agent.connection = connection
                self._selector.register(connection, selectors.EVENT_READ, agent)
                self._take(agent, hello)
                self._read(agent)  # what came with it
            else:
                connection.close()

    def _read(self, agent: AgentHandle) -> None:
        assert agent.connection is not None
        agent.heard_s = time.monotonic()
        try:
            for message in agent.connection.receive():
                self._take(agent, message)
        except (ControlLost, ValueError) as error:
            self._lose(agent, str(error))

    def _take(self, agent: AgentHandle, message: Content) -> None:
        if "pong" in message:
            # A time from before it was read may be from before it came, and would make the bound too tight.
            agent.clock.add(sample_of(message["pong"], message["t2"], message["t3"], time.monotonic_ns()))
        elif "file" in message:
            agent.files.take(message)
        elif "number" in message:
            self._answers[message["number"]] = message
            agent.unanswered -= 1
        elif "hello" in message:
            agent.about = message["hello"]
            del self._keys[agent.name]
            agent.clock = ClockComparison(same=agent.about["clock_of"] == clock_of_machine())
        else:
            self.events.append((agent, message))

    # ---- losses, and the end ------------------------------------------------------------------------------------

    def _check(self, agent: AgentHandle, now_s: float) -> None:
        if agent.lost or agent.connection is None:
            return
        if reason := agent.started.lost():
            self._lose(agent, reason)
        elif not agent.unanswered and now_s - agent.heard_s > self._silence_s:
            self._lose(agent, f"no sign of life for {self._silence_s:g} s")

    def _lose(self, agent: AgentHandle, why: str) -> None:
        if agent.lost:
            return
        reason, end_s = agent.started.lost(), time.monotonic() + _REASON_S
        while not reason and time.monotonic() < end_s:
            time.sleep(0.01)
            reason = agent.started.lost()
        agent.lost = f"its machine {agent.place} is lost: {reason or why}"
        if agent.connection is not None:
            self._selector.unregister(agent.connection)
            agent.connection.close()
        self.events.append((agent, {"lost": agent.lost}))

    def quit(self) -> None:
        """Let all agents end, and take what they still send."""
        for agent in self.by_name.values():
            self.send(agent, {"do": "quit"})
        end_s = time.monotonic() + _QUIT_S
        while time.monotonic() < end_s and any(each.connection and not each.lost for each in self.by_name.values()):
            self.turn(TICK_S)
        self._listener.close()

    def close(self) -> None:
        """Close what is left, after ``quit``."""
        for agent in self.by_name.values():
            if agent.connection is not None:
                agent.connection.close()
        self._selector.close()


def _value(answer: Content, agent: str) -> Any:
    if "error" not in answer:
        return answer["reply"]
    found = getattr(errors, answer["of"], RunFailed)
    kind = found if isinstance(found, type) and issubclass(found, TestbedError) else RunFailed
    error = kind(f"{agent}: {answer['error']}")
    for note in answer["notes"]:
        error.add_note(note)
    raise error
