"""A Plan in virtual time: builds the network and one world per node, and runs all roles to their end."""

from __future__ import annotations

import gc
import importlib.util
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

from simpy.core import EmptySchedule

from testbed.best_effort import pace_bps
from testbed.errors import Interrupted, NodeLost, RunFailed
from testbed.messages import Message, MessageKind
from testbed.plan.fault_clock import FaultClock, expendable, late_comers, needed_with
from testbed.plan.model import NodePlan, Plan, monitor_of
from testbed.plan.pace import Pacer
from testbed.results.events import EventLog
from testbed.simulation.background import start_background
from testbed.simulation.best_effort import BestEffort, Setting
from testbed.simulation.clock import Clock
from testbed.simulation.compute import ComputeModel
from testbed.simulation.envelope import Peer
from testbed.simulation.failure_notifier import FailureNotifier
from testbed.simulation.faults import OnFault, SimulatedFaults
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.fold import fold
from testbed.simulation.host import HostModel, Thread
from testbed.simulation.monitor import Links, ProgressReporter
from testbed.simulation.paths import PathTable, SitePath
from testbed.simulation.predicted_transfer import ServerPath, ports_of
from testbed.simulation.recorder import BRIEF, Progress, VirtualRecorder
from testbed.simulation.tcp import ConnectionGroup, TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.waits import Deadlock, Waits
from testbed.simulation.worker_group import FlowGroups, WorkerGroup
from testbed.simulation.world import SimulatedWorld
from testbed.world import Role

_LARGE = 300  # nodes: from here on numba's start-up time pays
_SOLVES = 1_000_000  # times flows, in Python: after so many it pays in a smaller run as well
_LOG_MEMORY_BYTES = 64 << 20
_STATUS_NODES = 64  # runs of more nodes report only as a whole
_BRIEF_LOGS = 2000  # nodes: from here on logs are brief, unless asked for in full
_BRIEF_RANKS = 300  # of an all-reduce, likewise: the messages of a ring grow with their square
_GARBAGE_EVERY = 1_000_000  # allocations; hardly anything in a simulation is garbage that only the collector finds
_CHECK_EVERY = 64  # events between looks at the wall clock

RoleMaker = Callable[[Plan, NodePlan], Role]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What the Plan leaves open.

    tcp       ``None``: by the Plan's transport
    compiled  whether numba solves; ``None``: if it is installed and the run large or long. The results are the same
    begin_s   the time at which it begins: a restart goes on where the attempt before it ended
    due       which faults have yet to happen; ``None``: all of the Plan's
    on_fault  is told of each when it happens
    """

    tcp: TcpModel | None = None
    compute: ComputeModel = field(default_factory=ComputeModel)
    compiled: bool | None = None
    sample_interval_s: float = 0.5
    begin_s: float = 0.0
    due: FaultClock | None = None
    on_fault: OnFault = lambda due, now_s: None


@dataclass(frozen=True, slots=True)
class SimulatedNodeExit:
    """How a node ended: what its role returned, or the error, and when."""

    result: Any
    error: BaseException | None
    at_s: float


def simulate(
    plan: Plan,
    make_role: RoleMaker,
    run_directory: Path,
    on_progress: Progress,
    options: SimulationOptions | None = None,
) -> dict[str, SimulatedNodeExit]:
    """Run every node of ``plan`` in virtual time; event logs go to ``<run_directory>/events``.

    Ends when all roles have ended, when one has failed, when nobody can advance any more, or on Ctrl-C (then the
    others' errors say so). Equal Plans give equal virtual times, bit for bit. Raises nothing that a role raised.
    """
    simulation = Simulation(plan, run_directory, on_progress, options or SimulationOptions())
    try:
        simulation.start(make_role)
        with little_collecting():
            simulation.run()
    except KeyboardInterrupt:
        simulation.stop(Interrupted("stopped by Ctrl-C; the results so far are kept"))
    finally:
        simulation.close()
    return simulation.exits


class Simulation:
    """One run. ``exits`` grows as nodes end."""

    def __init__(self, plan: Plan, run_directory: Path, on_progress: Progress, options: SimulationOptions) -> None:
        folded = fold(plan)
        self._whole, self._members = plan, folded.members
        plan = self._plan = folded.plan
        self._progress, self._compute = on_progress, options.compute
        self._tcp = options.tcp or TcpModel.of(plan.transport)
        self._directory = run_directory / "events"
        self._buffer_bytes = max(4096, min(1 << 16, _LOG_MEMORY_BYTES // max(1, len(plan.nodes))))
        self.clock = Clock(options.begin_s)
        self._due = options.due or FaultClock(plan)
        self._paths = PathTable(plan, self._tcp.goodput, options.compute.message_bytes_per_s)
        compiled = _may_compile(plan) if options.compiled is None else options.compiled
        later = _SOLVES if options.compiled is None and importlib.util.find_spec("numba") is not None else math.inf
        self.network = FlowNetwork(self.clock, self._paths.capacities(), self._paths.longest, compiled, later)
        self._ports = ports_of(self._members, plan, self._paths, self.network)
        self._waits = Waits(self.clock)
        self._log = EventLog(self._directory, "links")
        self._links = Links(self.clock, self.network, self._paths, self._log, options.sample_interval_s)
        self._host = HostModel(self.clock, plan.simulation.host) if plan.simulation.host is not None else None
        self._logs: dict[str, EventLog] = {}
        self._left_out = BRIEF if _is_brief(plan) else frozenset()
        self._worlds: dict[str, SimulatedWorld] = {}
        self._recorders: list[VirtualRecorder] = []  # of nodes whose status is reported one by one
        self._status = ProgressReporter(self.clock, on_progress, self._report_nodes)
        self._stop: BaseException | None = None
        self._faults = SimulatedFaults(plan, self.clock, self._due, self, options.on_fault)
        self._news = FailureNotifier(plan, self.clock, lambda: self._worlds[monitor_of(plan)])
        self._trained = False  # whether training has begun
        self.exits: dict[str, SimulatedNodeExit] = {}

    def start(self, make_role: RoleMaker) -> None:
        """Make all nodes; their roles begin at once, in the Plan's order."""
        host = asdict(self._host.plan) if self._host else None
        self._log.write("model", self.clock.now, tcp=asdict(self._tcp), compute=asdict(self._compute), host=host,
                        folded=len(self._whole.nodes) - len(self._plan.nodes))  # fmt: skip
        self._warn()
        for node in self._plan.nodes:
            self._worlds[node.name] = self._make_world(node)
        self._make_role = make_role
        late = late_comers(self._plan)
        for node in self._plan.nodes:
            if node.name in late:
                self._finish(node.name, None, None)
            else:
                self._begin(node.name)
        self._links.start_sampling()
        if self._due.training_since_s is not None:
            self._begin_training(self._due.training_since_s)

    def run(self) -> None:
        """Let time pass until all have ended, one has failed, or nobody can advance."""
        clock, tick = self.clock, self._status.tick
        clock.on_background = self._look_for_stall
        while not clock.over:
            try:
                clock.advance(_CHECK_EVERY)
            except EmptySchedule:
                self._look_for_stall()
                if not clock.over:
                    self._end_waiting()
            tick()
        if isinstance(self._stop, KeyboardInterrupt):
            raise self._stop
        if self._stop is not None:
            self.stop(RunFailed(f"stopped, because another node failed: {self._stop}"))

    def stop(self, error: BaseException) -> None:
        """End all nodes that still run with ``error``."""
        for name in self._worlds:
            if name not in self.exits:
                self._finish(name, None, error)

    def close(self) -> None:
        """Write what is buffered."""
        for doubt in self._links.doubts(self._tcp):
            self._warning(doubt)
        self._links.sample()
        for log in (self._log, *self._logs.values()):
            log.close()

    # ---- nodes --------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        world = self._worlds[name]
        coroutine = cast(Coroutine[Any, Any, Any], self._make_role(self._plan, self._plan.node(name))(world))
        world.run(coroutine, lambda result: self._finish(name, result, None))

    def _make_world(self, node: NodePlan) -> SimulatedWorld:
        log = self._logs.get(node.name) or EventLog(self._directory, node.name, self._buffer_bytes)
        self._logs[node.name] = log
        recorder = VirtualRecorder(node.name, log, self._progress, self._on_milestone, self._left_out)
        world = SimulatedWorld(
            node, self.clock, self._waits, recorder, self._compute, self._plan.timeouts.step_deadline_s, self._find
        )
        world.on_failure = partial(self._on_failure, node.name)
        if node.name == monitor_of(self._plan):
            world.on_missed = self._on_missed
        world.pacer = Pacer(node.device, self._plan.seed, node.name, self._due.training_since_s)
        world.process = Thread(self._host) if self._host else None
        if node.name in self._members:
            world.fold(WorkerGroup(self._members[node.name], self._plan.seed))
        if len(self._plan.nodes) <= _STATUS_NODES:
            self._recorders = [*(each for each in self._recorders if each.node != node.name), recorder]
        return world

    def _find(self, source: SimulatedWorld, target: str) -> Peer:
        path, links = self._paths.between(source.node, target)
        world = self._worlds[target]
        if source.crew is not None or world.crew is not None:
            return self._find_folded(source, world, path)
        deliver = self._news.way(source, world)
        connection = TcpConnection(self.clock, self.network, path, links, self._tcp, deliver)
        self._links.add(connection, links)
        best_effort = None
        if self._plan.transport.best_effort_channels:
            chance = Random(f"{self._plan.seed}/{source.node}>{target}")
            setting = Setting(
                pace_bps(self._plan, source.node, target), self._tcp.goodput, chance, self._links.add_flow
            )
            best_effort = BestEffort(self.clock, self.network, connection, path, links, setting, world.deliver)
        return Peer(connection, world, path.tier, best_effort)

    def _find_folded(self, source: SimulatedWorld, target: SimulatedWorld, path: SitePath) -> Peer:
        """As ``_find``, where one end stands for many nodes: so many connections, as few as say the same."""
        links, port = self._paths.shared(source.node, target.node, self._members)
        if source.crew is None:
            connection = self._connect(path, links, target, ConnectionGroup(target.copies, port))
            return Peer(connection, target, path.tier, None)
        lanes = source.crew.lanes(in_step=target.node not in self._plan.node(source.node).parents)
        connections = [
            self._connect(path, links, target, ConnectionGroup(lane.copies, port), lane.copies) for lane in lanes
        ]
        way = ServerPath(self.network, target, self._ports.get(links[0]), path.delay_s)
        return Peer(
            connections[0], target, path.tier, None, FlowGroups(self.clock, source.crew, lanes, connections, way)
        )

    def _connect(
        self, path: SitePath, links: tuple[int, ...], target: SimulatedWorld, crowd: ConnectionGroup, copies: int = 1
    ) -> TcpConnection:
        deliver = target.deliver if copies == 1 else partial(target.deliver, copies=copies)
        connection = TcpConnection(self.clock, self.network, path, links, self._tcp, deliver, crowd)
        self._links.add(connection, links)
        return connection

    def _on_failure(self, name: str, error: BaseException) -> None:
        if self._goes_on_without(name, error):
            return
        self._stop = error if self._stop is None or isinstance(error, KeyboardInterrupt) else self._stop
        self.clock.over = True
        if not isinstance(error, KeyboardInterrupt):
            cause = type(error).__name__
            self._worlds[name].record("error", message=str(error), cause=cause)
            self._finish(name, None, error)

    def _finish(self, name: str, result: Any, error: BaseException | None) -> None:
        if name not in self.exits:
            self.exits[name] = SimulatedNodeExit(result, error, self.clock.now)
            self.clock.over = self.clock.over or len(self.exits) == len(self._plan.nodes)
            self._worlds[name].close()

    def _on_missed(self, message: Message) -> None:
        """A node that registers when all is over is turned away, and ends, as it would at a closed port."""
        if message.kind is MessageKind.REGISTER and self._plan.recovery.on_failure == "continue":
            self._finish(message.sender, None, None)

    def kill(self, node: str, error: NodeLost) -> None:
        """A fault: the node is gone, and the run with it, unless the others go on."""
        if node not in self.exits:
            self._on_failure(node, error)

    def _goes_on_without(self, name: str, error: BaseException) -> bool:
        """Whether the run does: then the scheduler hears of it, as soon as the news has travelled."""
        if name not in expendable(self._plan) or not isinstance(error, NodeLost):
            return False
        self._finish(name, None, None)
        scheduler = monitor_of(self._plan)
        delay_s = self._paths.between(name, scheduler)[0].delay_s
        self._news.of_death(self._worlds[name], str(error), delay_s)
        return True

    def pause(self, node: str, until_s: float) -> None:
        """A fault: the node stands still."""
        if node not in self.exits:
            self._worlds[node].pause(until_s)

    def dismiss(self, node: str) -> None:
        """A fault: the node is asked to leave."""
        if node not in self.exits:
            self._worlds[node].take_in(Message(MessageKind.LEAVE, sender=node, sent_at_s=self.clock.now))

    def revive(self, node: str) -> None:
        """A fault is over: a new process of that name, if the others have gone on and still do."""
        if self._plan.recovery.on_failure != "continue" or monitor_of(self._plan) in self.exits:
            return
        for name in needed_with(self._plan, node):
            if name in self.exits:
                del self.exits[name]
                self._worlds[name] = self._make_world(self._plan.node(name))
                self._news.returned(self._worlds[name])
                self._begin(name)

    def _report_nodes(self) -> None:
        waits = self._waits.by_node() if self._recorders else {}
        for recorder in self._recorders:
            if recorder.node not in self.exits:
                mine = [(wait.waiting_for, wait.since_s) for wait in waits.get(recorder.node, ())]
                recorder.status(self.clock.now, mine)

    # ---- events of the whole ------------------------------------------------------------------------------------

    def _on_milestone(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "train" and not self._trained:
            self._begin_training(self.clock.now)
        self._faults.take(kind, fields)

    def _begin_training(self, since_s: float) -> None:
        self._trained = True
        self._links.start_traces(since_s)
        start_background(self._plan, self.clock, self._links, since_s)

    def _look_for_stall(self) -> None:
        """Nobody can advance but by a deadline: remember who waits for what. Without any deadline, it is the end."""
        clock = self.clock
        if not clock.nothing_but_background or self.network.active:
            if clock.stalled:
                clock.stalled, self._waits.graph = False, None
                self._links.start_sampling()
            return
        if not clock.stalled:
            clock.stalled = True
            self._waits.graph = self._waits.describe()
        if self._waits.earliest_s() == math.inf:
            self._end_waiting()

    def _end_waiting(self) -> None:
        """Whoever has not ended never will."""
        self.clock.over = True
        waits = self._waits.by_node()
        graph = self._waits.graph or []
        for name in self._worlds:
            if name in self.exits:
                continue
            error = Deadlock(waits[name][0], math.inf, graph) if name in waits else RunFailed(f"{name} waits for ever")
            self._on_failure(name, error)

    def _warn(self) -> None:
        if self._left_out and self._plan.simulation.events == "auto":
            nodes = len(self._plan.nodes)
            told = "logs leave out computations, waits and what crosses a LAN ('simulation.events: full' writes all)"
            self._warning(f"{nodes} nodes: {told}")
        for link in self._plan.network.links:
            if link.jitter_s > 0:
                self._warning(f"link {link.name}: jitter has no effect in simulation")
        if self._tcp.congestion_control not in ("reno", "cubic", "bbr"):
            self._warning(f"congestion control {self._tcp.congestion_control!r} is simulated as CUBIC")

    def _warning(self, message: str) -> None:
        self._log.write("warning", self.clock.now, message=message)
        self._progress({"kind": "warning", "t": self.clock.now, "node": "simulation", "message": message})


def _is_brief(plan: Plan) -> bool:
    events = plan.simulation.events
    many = _BRIEF_RANKS if plan.technique.paradigm.kind == "allreduce" else _BRIEF_LOGS
    return events == "brief" or (events == "auto" and len(plan.nodes) >= many)


@contextmanager
def little_collecting() -> Iterator[None]:
    """What stands when a run begins stays to its end: the collector need not look at it over and over.

    Around many short runs it counts for all of them, for looking at everything once costs more than such a run.
    """
    thresholds = gc.get_threshold()
    if thresholds[0] == _GARBAGE_EVERY:
        yield
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_EVERY, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _may_compile(plan: Plan) -> bool:
    return len(plan.nodes) >= _LARGE and importlib.util.find_spec("numba") is not None
