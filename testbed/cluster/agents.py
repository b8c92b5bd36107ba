"""The driver's side of the agents of a run: starts an agent on every machine, and replaces lost agents."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from testbed import errors
from testbed.cluster.agent_process import AgentStarter, Answer, StartedAgent, Ticket
from testbed.cluster.clocks import ClockComparison, ClockSample, clock_of_machine, correct_file, sample_of
from testbed.cluster.files import FilePiece, ReceivedFiles
from testbed.cluster.machines import Placement, cluster_of, place, placed_on
from testbed.errors import CapabilityError, NodeLost, RunFailed, TestbedError
from testbed.plan.model import Plan, to_json
from testbed.realtime.tls import new_pem

START_LIMIT_S = 120.0
ANSWER_LIMIT_S = 60.0
_FIRST_SAMPLES = 20
_SAMPLE_INTERVAL_S = 0.25
_LEAST_SILENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class AgentLost:
    """An event: an agent is lost."""

    why: str


@dataclass(slots=True, eq=False)
class AgentHandle:
    """An agent of a run.

    epoch_ns            the run's start, on the driver's clock
    inbox               receives the agent's events and samples of its clock
    silence_s           the agent is lost if a question about its clock has no answer for this long
    about               the agent's description of its machine
    offset_at_epoch_ns  offset of its clock, as known when its first nodes start
    lost                why the agent is lost; empty while it is not
    """

    placement: Placement
    started: StartedAgent
    files: ReceivedFiles
    epoch_ns: int
    inbox: queue.SimpleQueue[tuple[AgentHandle, Any]]
    silence_s: float
    clock: ClockComparison = field(default_factory=ClockComparison)
    about: dict[str, Any] = field(default_factory=dict)
    offset_at_epoch_ns: int = 0
    lost: str = ""
    _pulling: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self.placement.name

    @property
    def place(self) -> str:
        """The agent's name and address, for messages."""
        return f"{self.name} ({self.placement.machine.address})"

    def last_output(self) -> str:
        """Return a colon and the last line that the agent has written; empty if there is no line."""
        lines = self.started.output().strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    # ---- its messages -------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Start a thread that puts the agent's events, and samples of its clock, into the inbox."""
        self._thread = threading.Thread(target=self._follow, name=f"agent {self.name}", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while not self._stopping.is_set():
                self.inbox.put((self, self.sample()))
                self.pull(_SAMPLE_INTERVAL_S)
        except ConnectionError as error:
            self.inbox.put((self, AgentLost(str(error))))

    def sample(self) -> ClockSample:
        """Ask the agent for its time once, and return the sample."""
        asked_ns = time.monotonic_ns()
        there_ns = self.started.clock_ns(self.silence_s)
        return sample_of(asked_ns, there_ns, there_ns, time.monotonic_ns())

    def pull(self, wait_s: float = 0.0) -> None:
        """Put the events that the agent has sent into the inbox; if there are none, wait for one up to ``wait_s``."""
        with self._pulling:
            for event in self.started.events(wait_s):
                self.inbox.put((self, event))

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self.started.stop()

    # ---- times --------------------------------------------------------------------------------------------------

    @property
    def epoch_there_ns(self) -> int:
        """The run's start, on the agent's clock."""
        return self.epoch_ns + self.offset_at_epoch_ns

    def run_time_s(self, t: float) -> float:
        """Convert a time of the agent's nodes to the driver's clock, both in s of the run, by the present offset."""
        offset_ns = self.clock.offset_ns(self.epoch_ns + round(t * 1e9))
        return t + (self.offset_at_epoch_ns - offset_ns) / 1e9

    def correction(self) -> Callable[[float], float]:
        """Return a function from times of the agent's events to the driver's clock, both in s of the run."""
        return self.clock.correction(self.epoch_ns, self.offset_at_epoch_ns)

    def report(self) -> dict[str, Any]:
        """Return the manifest's description of the agent's machine."""
        return {
            "name": self.name,
            "data_center": self.placement.data_center,
            "address": self.placement.machine.address,
            "id": self.placement.machine.id,
            "advertised": self.placement.advertise,
            "nodes": sorted(self.placement.ports),
            **{key: value for key, value in self.about.items() if key != "clock_of"},
            "clock": self.clock.report(),
            "lost": self.lost,
        }


class Agents:
    """All agents of a run, from the start of the first one to the end of the run.

    run_id      a random identifier of this run, in hexadecimal
    placements  the machines of the run with their nodes
    events      events of nodes and losses of agents, each with its agent, in order of arrival
    """

    def __init__(self, plan: Plan, directory: Path, starter: AgentStarter, epoch_ns: int) -> None:
        self._plan = plan
        self._directory = directory
        self._starter = starter
        self._epoch_ns = epoch_ns
        self.placements: tuple[Placement, ...] = place(plan, starter.machines(plan))
        self._secret = secrets.token_hex(32)
        self.run_id = secrets.token_hex(8)
        self._pem = new_pem() if plan.transport.tls else ""
        self._by_name: dict[str, AgentHandle] = {}
        self._all: list[AgentHandle] = []  # including lost agents
        self._inbox: queue.SimpleQueue[tuple[AgentHandle, Any]] = queue.SimpleQueue()
        self.events: deque[tuple[AgentHandle, Any]] = deque()
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
        return iter(self._by_name.values())

    def of_node(self, node: str) -> AgentHandle:
        return next(agent for agent in self if node in agent.placement.ports)

    # ---- start --------------------------------------------------------------------------------------------------

    def start_missing(self) -> None:
        """Start an agent on every machine without one, and let it load what its nodes need.

        Raise ``NodeLost`` if no machine can replace a lost one, or an agent is lost; ``CapabilityError`` if an agent
        does not start or its machine does not suit the run.
        """
        missing = self._missing()
        if not missing:
            return
        if self._all:
            self._place_again(missing)
            missing = self._missing()
        new = [self._start(placement) for placement in missing]
        for agent in new:
            self._describe(agent)
        self.ask_all({agent.name: ("prepare",) for agent in new}, START_LIMIT_S)
        for agent in new:
            agent.offset_at_epoch_ns = round(agent.clock.offset_ns(time.monotonic_ns()))
            agent.follow()

    def _missing(self) -> list[Placement]:
        there = {agent.name for agent in self if not agent.lost}
        return [placement for placement in self.placements if placement.name not in there]

    def _place_again(self, missing: Sequence[Placement]) -> None:
        """Move the nodes of lost machines to unused machines of their data centre, preferably not ones lost before."""
        why = {agent.name: agent.lost for agent in self if agent.lost}
        found = self._starter.machines(self._plan)
        gone = {agent.placement.machine.id for agent in self._all if agent.lost}
        used = {agent.placement.machine.id for agent in self if not agent.lost}
        again = {}
        for old in missing:
            free = [machine for machine in found[old.data_center] if machine.id not in used]
            if not free:
                raise NodeLost(f"{why[old.name]}; there is no other machine of {old.data_center}")
            machine = min(free, key=lambda each: each.id in gone)
            used.add(machine.id)
            wanted = cluster_of(self._plan).data_centers[old.data_center]
            again[old.name] = placed_on(machine, wanted, old.name, old.data_center, old.ports)
        self.placements = tuple(again.get(placement.name, placement) for placement in self.placements)

    def _start(self, placement: Placement) -> AgentHandle:
        ticket = Ticket(
            name=placement.name,
            secret=self._secret,
            run_id=self.run_id,
            plan=to_json(self._plan),
            bind=placement.bind,
            nodes=tuple(placement.ports),
            working_directory=str(Path.cwd()),
            pem=self._pem,
        )
        started = self._starter.start(placement, ticket)
        files = ReceivedFiles(self._directory)
        silence_s = max(_LEAST_SILENCE_S, self._plan.timeouts.dead_after_s)
        agent = AgentHandle(placement, started, files, self._epoch_ns, self._inbox, silence_s)
        self._by_name[placement.name] = agent
        self._all.append(agent)
        return agent

    def _describe(self, agent: AgentHandle) -> None:
        """Ask an agent for its machine's description, and compare clocks.

        Raise ``CapabilityError`` if the agent does not start, or its machine has other versions than the first one.
        """
        try:
            agent.about = _value(agent.started.call("describe", limit_s=START_LIMIT_S), agent.name)
            agent.clock = ClockComparison(same=agent.about["clock_of"] == clock_of_machine())
            for _ in range(_FIRST_SAMPLES):
                agent.clock.add(agent.sample())
        except ConnectionError as error:
            agent.lost = str(error)
            text = f"{agent.place}: no agent has started there: {error}{agent.last_output()}"
            raise CapabilityError(text) from error
        first = next(iter(self)).about["versions"]
        if agent.about["versions"] != first:
            cure = f"install the same versions on all machines ({first} elsewhere)"
            raise CapabilityError(f"{agent.place}: has {agent.about['versions']}; {cure}")

    # ---- questions and events -----------------------------------------------------------------------------------

    def ask(self, agent: AgentHandle, question: str, *arguments: Any) -> Any:
        """Return an agent's answer. Raise the error that it answers with, or ``NodeLost`` if no answer comes."""
        return self.ask_all({agent.name: (question, *arguments)})[agent.name]

    def ask_all(self, questions: Mapping[str, tuple[Any, ...]], limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """Ask several agents at the same time, each its own question with arguments; return the answers by agent."""
        with ThreadPoolExecutor(max(1, len(questions))) as threads:
            futures = {
                name: threads.submit(self._by_name[name].started.call, *question, limit_s=limit_s)
                for name, question in questions.items()
                if not self._by_name[name].lost
            }
        for name, future in futures.items():
            if isinstance(error := future.exception(), ConnectionError):
                self._lose(self._by_name[name], str(error))
        for name in questions:
            if self._by_name[name].lost:
                raise NodeLost(self._by_name[name].lost)
        return {name: _value(future.result(), name) for name, future in futures.items()}

    def turn(self, timeout_s: float) -> None:
        """Handle everything in the inbox; if it is empty, wait up to ``timeout_s`` for the first entry."""
        try:
            self._take(*self._inbox.get(timeout=timeout_s))
            while True:
                self._take(*self._inbox.get_nowait())
        except queue.Empty:
            pass

    def _take(self, agent: AgentHandle, event: Any) -> None:
        if isinstance(event, ClockSample):
            agent.clock.add(event)
        elif isinstance(event, FilePiece):
            agent.files.take(event)
        elif isinstance(event, AgentLost):
            self._lose(agent, event.why)
        else:
            self.events.append((agent, event))

    def take_all(self) -> None:
        """Handle all events that agents have sent before this call."""
        for agent in self:
            if not agent.lost:
                try:
                    agent.pull()
                except ConnectionError as error:
                    self._lose(agent, str(error))
        self.turn(0.0)

    def _lose(self, agent: AgentHandle, why: str) -> None:
        if not agent.lost:
            agent.lost = f"its machine {agent.place} is lost: {why}"
            self.events.append((agent, AgentLost(agent.lost)))

    # ---- the end ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End all agents. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        outputs = [agent.started.output() for agent in self._all]
        with ThreadPoolExecutor(max(1, len(self._all))) as threads:
            list(threads.map(AgentHandle.stop, self._all))
        for agent, output in zip(self._all, outputs, strict=True):
            if output:
                with (self._directory / "host.log").open("a", encoding="utf-8") as log:
                    log.writelines(f"{agent.name}: {line}\n" for line in output.splitlines())
        self.turn(0.0)

    def correct_events(self) -> None:
        """Convert all times in the run's event files to this machine's clock. Call it after ``stop``."""
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
        """Return the manifest's description of each machine."""
        return [agent.report() for agent in self._all]


def _value(answer: Answer, agent: str) -> Any:
    if not answer.error:
        return answer.value
    found = getattr(errors, answer.error, RunFailed)
    kind = found if isinstance(found, type) and issubclass(found, TestbedError) else RunFailed
    error = kind(f"{agent}: {answer.text}")
    for note in answer.notes:
        error.add_note(note)
    raise error
