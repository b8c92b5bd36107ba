"""One job of a simulation: the worlds of its nodes, on a clock and a network that it may share with other jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from testbed.compute_model import ComputeModel
from testbed.devices.accelerator import CPU, accelerator_of
from testbed.errors import NodeLost, RunFailed
from testbed.messages import Message, MessageKind
from testbed.placing import place_of
from testbed.plan.fault_clock import FaultClock, expendable
from testbed.plan.instant import ConnectionState, Instant
from testbed.plan.jobs import Job
from testbed.plan.model import NodePlan, Plan, monitor_of
from testbed.plan.once import once_per_plan
from testbed.plan.pace import Pacer
from testbed.results.events import EventLog
from testbed.results.progress import Progress
from testbed.simulation.clock import Clock
from testbed.simulation.connections import SimulatedNetwork
from testbed.simulation.failure_notifier import FailureNotifier
from testbed.simulation.faults import OnFault, SimulatedFaults
from testbed.simulation.fold import fold
from testbed.simulation.node import SimulatedNode
from testbed.simulation.outbox import Peer
from testbed.simulation.recorder import VirtualRecorder, left_out
from testbed.simulation.step_threads import StepThreads
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.waits import Deadlock, Waits
from testbed.simulation.worker_group import WorkerGroup
from testbed.simulation.world import SimulatedWorld
from testbed.training.options import MODELS
from testbed.training.options.declarations import OWN_JOBS
from testbed.world import Role

_STATUS_NODES = 64  # with more nodes, only the run as a whole reports its status

RoleMaker = Callable[[Plan, NodePlan], Role]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Choices that the Plan leaves open.

    tcp       ``None``: the model of the Plan's transport
    compiled  whether to compile the network with numba, with the same results; ``None``: if the run is large or long
    begin_s   virtual time at which the run begins: after a restart, the time at which the previous attempt ended
    due       faults that have yet to happen; ``None``: all faults of the Plan
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
    """How a node ended: the result of its role or the error, and the virtual time."""

    result: Any
    error: BaseException | None
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A job that is to be simulated. Its events go to ``<directory>/events``."""

    job: Job
    make_role: RoleMaker
    directory: Path
    on_progress: Progress
    options: SimulationOptions = field(default_factory=SimulationOptions)

    @property
    def tcp(self) -> TcpModel:
        return self.options.tcp or TcpModel.of_plan(self.job.plan)


class Jobs(Protocol):
    """What a job uses of the whole simulation; implemented by ``testbed.simulation.run.Simulation``."""

    clock: Clock
    network: SimulatedNetwork
    threads: StepThreads | None  # compute training steps

    def failed(self, job: SimulatedJob, error: BaseException) -> None:
        """Called when a node has ended with an error, so that the job has failed."""

    def ended(self, job: SimulatedJob) -> None:
        """Called when all nodes of the job have ended."""


class FoldedJob:
    """A job with one node for each worker group. ``members``: the whole groups; see ``testbed.simulation.fold``."""

    def __init__(self, run: JobRun) -> None:
        self.run = run
        self.plan, self.members = fold(run.job.plan)
        self.folded_nodes = len(run.job.plan.nodes) - len(self.plan.nodes)
        self.compute = run.options.compute.of_plan(self.plan)


class SimulatedJob:
    """The nodes of one job.

    exits   how nodes have ended so far, by name
    events  the log of the nodes; ``log``: that of the links
    """

    def __init__(self, folded: FoldedJob, jobs: Jobs) -> None:
        run = folded.run
        self._run = run
        self._jobs = jobs
        self._plan = folded.plan
        self._members = folded.members
        self._folded_nodes = folded.folded_nodes
        self._compute = folded.compute
        plan = self._plan
        self.clock = jobs.clock
        self._network = jobs.network
        self._due = run.options.due or FaultClock(plan)
        self.events = EventLog(run.directory / "events", "simulation", many=True)
        self.log = EventLog(run.directory / "events", "links", beside=self.events)
        self._waits = Waits(self.clock)
        self._left_out = left_out(plan)
        self._worlds: dict[str, SimulatedWorld] = {}
        self._recorders: dict[str, VirtualRecorder] = {}  # by node, only of nodes that report their status
        self.cause: BaseException | None = None  # why the job has failed
        self._faults = SimulatedFaults(plan, self.clock, self._due, self, run.options.on_fault, self._links_since_s)
        self._notifier = FailureNotifier(plan, self.clock, lambda: self._worlds[monitor_of(plan)])
        self.exits: dict[str, SimulatedNodeExit] = {}

    @property
    def start_s(self) -> float:
        """When the job's nodes begin."""
        return self._run.job.start_s

    @property
    def resumed_s(self) -> float:
        """When the job continues if it resumes an earlier run; otherwise a time before the run begins."""
        return self._due.resumed_s

    @property
    def has_ended(self) -> bool:
        return len(self.exits) == len(self._plan.nodes)

    def begin(self) -> None:
        """Make all nodes. Their roles begin in the Plan's order; nodes that join late begin with their fault."""
        self.log.write(
            "model",
            self.clock.now,
            tcp=asdict(self._run.tcp),
            compute=asdict(self._compute),
            folded=self._folded_nodes,
        )
        if not self._run.tcp.known:
            self.warn(f"congestion control {self._run.tcp.congestion_control!r} is simulated as CUBIC")
        for node in self._plan.nodes:
            self._worlds[node.name] = self._make_world(node)
        for node in self._plan.nodes:
            if node.name in self._due.absent:
                self._finish(node.name, None, None)
            else:
                self._begin(node.name)
        self._faults.resume()

    def resume_training(self) -> None:
        """Continue the training of the run that this one resumes, if it resumes one."""
        if self._due.training_since_s is not None:
            self._network.begin_training(self._due.training_since_s)

    def leave_network(self) -> None:
        """End the nodes that still run, as one has failed, and stop their sending."""
        for world in self._worlds.values():
            world.outbox.stop(math.inf)
        self.abandon()

    def abandon(self) -> None:
        """End the nodes that still run, as another node has failed."""
        self.stop(RunFailed(f"stopped, because another node failed: {self.cause}"))

    def stop(self, error: BaseException) -> None:
        """End all nodes that still run with ``error``."""
        for node in self._plan.nodes:
            if node.name not in self.exits:
                self._finish(node.name, None, error)

    def warn(self, message: str, **about: str) -> None:
        """Record a warning, and report it."""
        now = max(end.at_s for end in self.exits.values()) if self.has_ended else self.clock.now
        self.log.write("warning", now, message=message, **about)
        self._run.on_progress({"kind": "warning", "t": now, "node": "simulation", "message": message})

    # ---- nodes --------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        world = self._worlds[name]
        coroutine = cast(Coroutine[Any, Any, Any], self._run.make_role(self._plan, self._plan.node(name))(world))
        world.run(coroutine, lambda result: self._finish(name, result, None))

    def _make_world(self, plan: NodePlan) -> SimulatedWorld:
        """Return a world for a new process of a node."""
        name = plan.name
        seed = self._plan.seed
        recorder = VirtualRecorder(name, self.events, self._run.on_progress, self._on_milestone, self._left_out)
        if len(self._plan.nodes) <= _STATUS_NODES:
            self._recorders[name] = recorder
        node = SimulatedNode(
            name,
            Pacer(plan.device, seed, name, self._due.training_since_s),
            WorkerGroup(self._members[name], seed) if name in self._members else None,
            accelerator=accelerator_of(place_of(self._plan, plan)),
            threads=self._jobs.threads if _computes_steps(self._plan) else None,
            payloads=self._plan.simulation.payloads,
            host=self._run.job.host(name),
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
        self.cause = error if self.cause is None or isinstance(error, KeyboardInterrupt) else self.cause
        self._jobs.failed(self, error)
        if not isinstance(error, KeyboardInterrupt):
            self._worlds[name].record("error", message=str(error), cause=type(error).__name__)
            self._finish(name, None, error)

    def _finish(self, name: str, result: Any, error: BaseException | None) -> None:
        if name not in self.exits:
            self.exits[name] = SimulatedNodeExit(result, error, self.clock.now)
            if self.has_ended:
                self._jobs.ended(self)
            if name not in self._worlds:
                return  # the run has ended before the job has begun
            self._worlds[name].close()
            if name in self._recorders:
                self._recorders[name].status(self.clock.now, [])  # the bytes since the last report count, too

    def _on_missed(self, message: Message) -> None:
        """End a node that registers after the scheduler's end, as a closed port would reject a real one."""
        if message.kind is MessageKind.REGISTER and self._plan.recovery.on_failure == "continue":
            self._finish(message.sender, None, None)

    def _continues_without(self, name: str, error: BaseException, unheard_s: float) -> bool:
        """Whether the run continues without this node. If so, the scheduler is notified."""
        if name not in expendable(self._plan) or not isinstance(error, NodeLost):
            return False
        self._finish(name, None, None)
        lost = self._worlds[name]

        def delay_s(listener: SimulatedWorld) -> float:
            path, _ = self._network.paths.between(lost.host, listener.host)
            return path.delay_s if path.up else unheard_s + path.delay_s

        self._notifier.on_lost(lost, str(error), delay_s(self._worlds[monitor_of(self._plan)]))
        for world in self._worlds.values():
            if name in world.outbox.connections():  # drop waiting messages when the end of the connection is known
                self.clock.at(self.clock.now + delay_s(world), partial(world.outbox.drop, name))
        return True

    def tell_start(self) -> None:
        """Report that the nodes start, after the network has."""
        self._run.on_progress({"kind": "stage", "name": "starting nodes", "t": self.clock.now})

    def tell_end(self) -> None:
        """Report that the job has ended while others still run."""
        self._run.on_progress({"kind": "ended", "t": self.clock.now})

    def report(self, wall_s: float, rate: float) -> None:
        """Report the virtual time, how fast it passes, and the nodes' status, unless the job has ended.

        wall_s  wall-clock time of the whole run so far
        rate    virtual seconds per wall-clock second
        """
        if self.has_ended:
            return
        now = self.clock.now
        status = {"kind": "status", "t": now, "node": "simulation", "simulated_s": now, "wall_s": wall_s, "rate": rate}
        self._run.on_progress(status)
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
        """See ``Nodes``. Nodes restart only if the Plan continues after failures, and only while the scheduler runs."""
        if self._plan.recovery.on_failure != "continue" or monitor_of(self._plan) in self.exits:
            return []
        ended = [name for name in nodes if name in self.exits]
        for name in ended:
            del self.exits[name]
            self._worlds[name] = self._make_world(self._plan.node(name))
            self._notifier.on_restarted(self._worlds[name])
            self._begin(name)
        return ended

    # ---- the job as a whole -------------------------------------------------------------------------------------

    def _on_milestone(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "train":
            self._network.begin_training(self.clock.now)
        self._faults.take(kind, fields)

    def _links_since_s(self) -> float:
        """Return when the traces of links began: when the first job on the network began to train."""
        since_s = self._network.training_since_s
        return (self._due.training_since_s or 0.0) if since_s is None else since_s

    def _settle(self, instant: Instant | None) -> Instant | None:
        """Make all connections anew from their saved states, if nothing is in flight; see ``World.settle``.

        So a run that continues and a run that is resumed at ``instant`` have the same connections in the same states.
        Connections over packets stay as they are, without waiting; a resumed run makes new ones, as in emulation. Only
        a job that is alone on the network settles, as flows of other jobs would never be at rest.
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
        """Return the states of all connections between running nodes, by sender and receiver."""
        return {
            name: {
                to: [connection.state() for connection in made]
                for to, made in world.outbox.connections().items()
                if to not in self.exits
            }
            for name, world in self._worlds.items()
            if name not in self.exits
        }

    def stalled(self) -> None:
        """Keep the present wait graph, as only a deadline can let a node advance now."""
        self._waits.graph = self._waits.describe()

    def advanced(self) -> None:
        """Forget the wait graph, as a node has advanced."""
        self._waits.graph = None

    @property
    def waits_for_ever(self) -> bool:
        """Whether neither a deadline nor a fault of this job can let a node advance."""
        return self._waits.earliest_s() == math.inf and self._due.due_s == math.inf

    def end_waiting(self) -> None:
        """End all nodes that wait for something that can no longer happen."""
        waits = self._waits.by_node()
        graph = self._waits.graph or []
        for name in self._worlds:
            if name in self.exits:
                continue
            error = Deadlock(waits[name][0], math.inf, graph) if name in waits else RunFailed(f"{name} waits for ever")
            self._on_failure(name, error)


@once_per_plan
def _computes_steps(plan: Plan) -> bool:
    """Return whether nodes compute training steps on the processor. A script computes in a thread of its own."""
    on_processor = all(node.device.kind == CPU.type for node in plan.nodes)
    return plan.training.compute == "real" and MODELS[plan.training.model.kind].takes not in OWN_JOBS and on_processor
