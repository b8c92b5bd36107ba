"""Simulation of a Plan: builds the network and one world per node, and runs all roles to their end in virtual time."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from simpy.core import EmptySchedule

from testbed.compute_model import ComputeModel
from testbed.devices.accelerator import accelerator_of
from testbed.errors import Interrupted, NodeLost, RunFailed
from testbed.garbage import relaxed_garbage_collection
from testbed.messages import Message, MessageKind
from testbed.placing import place_of
from testbed.plan.fault_clock import FaultClock, expendable
from testbed.plan.instant import ConnectionState, Instant
from testbed.plan.model import NodePlan, Plan, monitor_of
from testbed.plan.pace import Pacer
from testbed.results.events import DOUBT, EventLog, flushed
from testbed.results.progress import Progress
from testbed.simulation.clock import Clock
from testbed.simulation.connections import SimulatedNetwork
from testbed.simulation.failure_notifier import FailureNotifier
from testbed.simulation.faults import OnFault, SimulatedFaults
from testbed.simulation.fold import fold
from testbed.simulation.node import SimulatedNode
from testbed.simulation.outbox import Peer
from testbed.simulation.paths import PathTable
from testbed.simulation.recorder import VirtualRecorder, left_out
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.waits import Deadlock, Waits
from testbed.simulation.worker_group import WorkerGroup
from testbed.simulation.world import SimulatedWorld
from testbed.world import Role

_STATUS_NODES = 64  # with more nodes, only the run as a whole reports its status
_BATCH_EVENTS = 64  # between looks at the wall clock
_REPORT_INTERVAL_S = 0.2  # wall time

RoleMaker = Callable[[Plan, NodePlan], Role]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What the Plan leaves open.

    tcp       ``None``: by the Plan's transport
    compiled  solve with numba, with the same results; ``None``: if the run is large or long
    begin_s   virtual time at which the run begins: after a restart, the time at which the attempt before it ended
    due       faults that have yet to happen; ``None``: all of the Plan's
    on_fault  called with each fault and the time at which it happens
    """

    tcp: TcpModel | None = None
    compute: ComputeModel = field(default_factory=ComputeModel)
    compiled: bool | None = None
    begin_s: float = 0.0
    due: FaultClock | None = None
    on_fault: OnFault = lambda due, now_s: None


@dataclass(frozen=True, slots=True)
class SimulatedNodeExit:
    """How a node ended: what its role returned, or the error, and when (s)."""

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
    """Run every node of ``plan`` in virtual time. Return how each ended, by name.

    Event logs go to ``<run_directory>/events``. Ends when all roles have ended, when one has failed, when no node can
    advance any more, or on Ctrl-C; the other nodes' errors then say so. Equal Plans give equal virtual times, bit for
    bit. Does not raise what a role raises: that is the node's ``error``.
    """
    simulation = Simulation(plan, run_directory, on_progress, options or SimulationOptions())
    try:
        with flushed(simulation.events), relaxed_garbage_collection():
            simulation.start(make_role)
            gc.freeze()  # nodes live to the end of the run: the collector need not look at them
            simulation.run()
    except KeyboardInterrupt:
        simulation.stop(Interrupted("stopped by Ctrl-C; the results so far are kept"))
    finally:
        simulation.close()
    return simulation.exits


class Simulation:
    """One run. ``exits`` grows as nodes end; ``events`` is the log of all of them."""

    def __init__(self, plan: Plan, run_directory: Path, on_progress: Progress, options: SimulationOptions) -> None:
        self._plan, self._members = fold(plan)
        self._folded_nodes = len(plan.nodes) - len(self._plan.nodes)
        plan = self._plan
        self._progress, self._compute = on_progress, options.compute.of_plan(plan)
        self._tcp = options.tcp or TcpModel.of_plan(plan)
        self.clock = Clock(options.begin_s)
        self._due = options.due or FaultClock(plan)
        self.events = EventLog(run_directory / "events", "simulation", many=True)  # of all nodes
        self._log = EventLog(run_directory / "events", "links", beside=self.events)
        paths = PathTable(plan, self._tcp.goodput, self._compute.message_bytes_per_s)
        self._network = SimulatedNetwork(plan, self.clock, self._tcp, paths, options.compiled, self._members, self._log)
        if self._network.packets is not None:
            self._network.packets.engine.warn = self._warning
        self._waits = Waits(self.clock)
        self._left_out = left_out(plan)
        self._worlds: dict[str, SimulatedWorld] = {}
        self._recorders: dict[str, VirtualRecorder] = {}  # of nodes that report their status
        self._start_s = self._reported_s = time.perf_counter()
        self._reported_now = 0.0
        self._cause: BaseException | None = None  # why the run is stopped
        self._faults = SimulatedFaults(plan, self.clock, self._due, self, options.on_fault)
        self._notifier = FailureNotifier(plan, self.clock, lambda: self._worlds[monitor_of(plan)])
        self._training = False  # it has begun
        self.exits: dict[str, SimulatedNodeExit] = {}

    def start(self, make_role: RoleMaker) -> None:
        """Make all nodes. Their roles begin in the Plan's order; those that join late begin with their fault."""
        self._log.write(
            "model", self.clock.now, tcp=asdict(self._tcp), compute=asdict(self._compute), folded=self._folded_nodes
        )
        self._warn()
        for node in self._plan.nodes:
            self._worlds[node.name] = self._make_world(node)
        self._make_role = make_role
        for node in self._plan.nodes:
            if node.name in self._due.absent:
                self._finish(node.name, None, None)
            else:
                self._begin(node.name)
        self._faults.resume()
        self._network.monitor.start_sampling(self._due.resumed_s)
        if self._due.training_since_s is not None:
            self._begin_training(self._due.training_since_s)

    def run(self) -> None:
        """Let time pass until all nodes have ended, one has failed, or none can advance."""
        clock = self.clock
        clock.on_background = self._look_for_stall
        while not clock.stopped:
            try:
                clock.advance(_BATCH_EVENTS)
            except EmptySchedule:
                self._look_for_stall()
                if not clock.stopped:
                    self._end_waiting()
            self.events.encode()
            self._report()
        if isinstance(self._cause, KeyboardInterrupt):
            raise self._cause
        if self._cause is not None:
            self.stop(RunFailed(f"stopped, because another node failed: {self._cause}"))

    def stop(self, error: BaseException) -> None:
        """End all nodes that still run with ``error``."""
        for name in self._worlds:
            if name not in self.exits:
                self._finish(name, None, error)

    def close(self) -> None:
        """Write the last samples and warnings, and all that is buffered."""
        for doubt in self._network.doubts():
            self._warning(doubt, cause=DOUBT)
        self._network.monitor.sample()
        self.events.close()

    # ---- nodes --------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        world = self._worlds[name]
        coroutine = cast(Coroutine[Any, Any, Any], self._make_role(self._plan, self._plan.node(name))(world))
        world.run(coroutine, lambda result: self._finish(name, result, None))

    def _make_world(self, plan: NodePlan) -> SimulatedWorld:
        """Return a world for a new process of a node."""
        name = plan.name
        seed = self._plan.seed
        recorder = VirtualRecorder(name, self.events, self._progress, self._on_milestone, self._left_out)
        if len(self._plan.nodes) <= _STATUS_NODES:
            self._recorders[name] = recorder
        node = SimulatedNode(
            name,
            Pacer(plan.device, seed, name, self._due.training_since_s),
            WorkerGroup(self._members[name], seed) if name in self._members else None,
            accelerator=accelerator_of(place_of(self._plan, plan)),
            payloads=self._plan.simulation.payloads,
        )
        world = SimulatedWorld(
            node, self.clock, self._waits, recorder, self._compute, self._plan.timeouts.step_deadline_s, self._connect
        )
        world.on_failure = partial(self._on_failure, name)
        world.on_settle = self._settle
        world.on_aside = lambda to, message: self._worlds[to].inbox.take_aside(message)
        if name == monitor_of(self._plan):
            world.inbox.on_missed = self._on_missed
        return world

    def _connect(self, source: SimulatedWorld, target: str) -> Peer:
        return self._network.connect(source, self._worlds[target], self._notifier)

    def _on_failure(self, name: str, error: BaseException, unheard_s: float = 0.0) -> None:
        if self._continues_without(name, error, unheard_s):
            return
        self._cause = error if self._cause is None or isinstance(error, KeyboardInterrupt) else self._cause
        self.clock.stopped = True
        if not isinstance(error, KeyboardInterrupt):
            self._worlds[name].record("error", message=str(error), cause=type(error).__name__)
            self._finish(name, None, error)

    def _finish(self, name: str, result: Any, error: BaseException | None) -> None:
        if name not in self.exits:
            self.exits[name] = SimulatedNodeExit(result, error, self.clock.now)
            self.clock.stopped = self.clock.stopped or len(self.exits) == len(self._plan.nodes)
            self._worlds[name].close()
            if name in self._recorders:
                self._recorders[name].status(self.clock.now, [])  # the bytes since the last report count, too

    def _on_missed(self, message: Message) -> None:
        """A node that registers after the scheduler's end is rejected and ends, as it would at a closed port."""
        if message.kind is MessageKind.REGISTER and self._plan.recovery.on_failure == "continue":
            self._finish(message.sender, None, None)

    def _continues_without(self, name: str, error: BaseException, unheard_s: float) -> bool:
        """Whether the run continues without this node. If so, the scheduler is notified."""
        if name not in expendable(self._plan) or not isinstance(error, NodeLost):
            return False
        self._finish(name, None, None)

        def delay_s(listener: str) -> float:
            path, _ = self._network.paths.between(name, listener)
            return path.delay_s if path.up else unheard_s + path.delay_s

        self._notifier.on_lost(self._worlds[name], str(error), delay_s(monitor_of(self._plan)))
        for world in self._worlds.values():
            if name in world.outbox.connections():  # it drops what waits for the node when their connection ends
                self.clock.at(self.clock.now + delay_s(world.node), partial(world.outbox.drop, name))
        return True

    def _report(self) -> None:
        """Report how far virtual time is, how fast it passes, and the nodes' status, if the last report is long ago."""
        wall_s = time.perf_counter()
        now = self.clock.now
        if wall_s - self._reported_s < _REPORT_INTERVAL_S:
            return
        self._progress(
            {
                "kind": "status",
                "t": now,
                "node": "simulation",
                "simulated_s": now,
                "wall_s": wall_s - self._start_s,
                "rate": (now - self._reported_now) / (wall_s - self._reported_s),
            }
        )
        self._reported_s = wall_s
        self._reported_now = now
        waits = self._waits.by_node() if self._recorders else {}
        for name, recorder in self._recorders.items():
            if name not in self.exits:
                recorder.status(self.clock.now, [(wait.waiting_for, wait.since_s) for wait in waits.get(name, ())])

    # ---- faults: see ``testbed.simulation.faults.Nodes`` ----------------------------------------------------------

    def kill(self, node: str, error: NodeLost, unheard_s: float = 0.0) -> None:
        if node not in self.exits:
            self._worlds[node].outbox.stop(math.inf)
            self._on_failure(node, error, unheard_s)

    def pause(self, node: str, until_s: float) -> bool:
        if node in self.exits:
            return False
        world = self._worlds[node]
        world.state.paused_until_s = max(world.state.paused_until_s, until_s)
        world.outbox.stop(until_s)
        return True

    def dismiss(self, node: str) -> None:
        if node not in self.exits:
            message = Message(MessageKind.LEAVE, sender=node, sent_at_s=self.clock.now)
            self._worlds[node].inbox.put(message)

    def restart(self, nodes: tuple[str, ...]) -> list[str]:
        """Only where the other nodes continue, and as long as the scheduler runs."""
        if self._plan.recovery.on_failure != "continue" or monitor_of(self._plan) in self.exits:
            return []
        ended = [name for name in nodes if name in self.exits]
        for name in ended:
            del self.exits[name]
            self._worlds[name] = self._make_world(self._plan.node(name))
            self._notifier.on_restarted(self._worlds[name])
            self._begin(name)
        return ended

    # ---- the run as a whole -------------------------------------------------------------------------------------

    def _on_milestone(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "train" and not self._training:
            self._begin_training(self.clock.now)
        self._faults.take(kind, fields)

    def _begin_training(self, since_s: float) -> None:
        self._training = True
        self._network.begin_training(since_s)

    def _settle(self, instant: Instant | None) -> Instant | None:
        """Let connections go on from what can be written down of them, if nothing is in flight; see ``World.settle``.

        Whether a run goes on or is resumed at ``instant``, it makes the same connections, of the same states. Those
        over packets remain as they are, at once: a run that is resumed makes new ones, as an emulated one does.
        """
        now = self.clock.now
        connections = {}
        if self._network.flows is not None:
            if not self._network.at_rest:
                return None
            connections = self._connection_states()
            if instant is not None and instant.at_s == now:
                connections = instant.connections
            self._notifier.begin_anew()
            self._network.flows.begin_anew(now)
            for name, world in self._worlds.items():
                world.outbox.reconnect(connections.get(name, {}))
        paused_s = {
            name: world.state.paused_until_s
            for name, world in self._worlds.items()
            if name not in self.exits and world.state.paused_until_s > now
        }
        return Instant(now, self._due.training_since_s or 0.0, tuple(self._due.rounds_s), paused_s, connections)

    def _connection_states(self) -> dict[str, dict[str, list[ConnectionState]]]:
        """Return the states of all connections between nodes that run, by their ends."""
        return {
            name: {
                to: [connection.state() for connection in made]
                for to, made in world.outbox.connections().items()
                if to not in self.exits
            }
            for name, world in self._worlds.items()
            if name not in self.exits
        }

    def _look_for_stall(self) -> None:
        """Find out whether nothing but a deadline can let a node advance, and keep the wait graph of that moment. If
        there is no deadline either, end all nodes."""
        clock = self.clock
        if not clock.only_background or self._network.active:
            if clock.stalled:
                clock.stalled = False
                self._waits.graph = None
                self._network.monitor.start_sampling()
            return
        if not clock.stalled:
            clock.stalled = True
            self._waits.graph = self._waits.describe()
        if self._waits.earliest_s() == math.inf and self._due.due_s == math.inf:  # else a fault may yet let one advance
            self._end_waiting()

    def _end_waiting(self) -> None:
        """End all nodes that wait for something that can no longer happen."""
        self.clock.stopped = True
        waits = self._waits.by_node()
        graph = self._waits.graph or []
        for name in self._worlds:
            if name in self.exits:
                continue
            error = Deadlock(waits[name][0], math.inf, graph) if name in waits else RunFailed(f"{name} waits for ever")
            self._on_failure(name, error)

    def _warn(self) -> None:
        if not self._tcp.known:
            self._warning(f"congestion control {self._tcp.congestion_control!r} is simulated as CUBIC")

    def _warning(self, message: str, **about: str) -> None:
        self._log.write("warning", self.clock.now, message=message, **about)
        self._progress({"kind": "warning", "t": self.clock.now, "node": "simulation", "message": message})
