"""The virtual world: ``testbed.world.World`` on SimPy's clock, the flow network and the compute model."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from testbed.best_effort import best_effort_overhead_bytes
from testbed.messages import Message, MessageKind, wire_bytes
from testbed.plan.model import NodePlan
from testbed.plan.pace import Pacer
from testbed.results.events import microseconds
from testbed.simulation.clock import Clock, Sleep, VirtualFuture
from testbed.simulation.compute import ComputeModel
from testbed.simulation.envelope import Envelope, Peer, carried
from testbed.simulation.host import Thread
from testbed.simulation.mailbox import Handle, Mailbox
from testbed.simulation.predicted_transfer import PredictedTransfer
from testbed.simulation.recorder import VirtualRecorder
from testbed.simulation.task import Task
from testbed.simulation.waits import Waits
from testbed.simulation.worker_group import WorkerGroup
from testbed.world import Future, Work

T = TypeVar("T")

QUEUE_LIMIT_BYTES = 64 << 20  # as in the real world: queued for one peer before ``send`` waits


class TaskFuture(VirtualFuture[Any]):
    """The result of a spawned coroutine, which knows whether anybody has asked for it."""

    asked_for: bool = False

    def __await__(self) -> Any:
        self.asked_for = True
        return super().__await__()


class SimulatedWorld:
    """See ``testbed.world.World``. ``find`` gives the connection to another node, its world, and the tier.

    ``pacer`` is given before the role runs.
    """

    pacer: Pacer

    def __init__(
        self, node: NodePlan, clock: Clock, waits: Waits, recorder: VirtualRecorder, compute: ComputeModel,
        step_deadline_s: float, find: Callable[[SimulatedWorld, str], Peer],
    ) -> None:  # fmt: skip
        self.node = node.name
        self._clock, self._waits, self._compute = clock, waits, compute
        self._recorder, self._step_deadline_s, self._find = recorder, step_deadline_s, find
        self._peers: dict[str, Peer] = {}
        self._mailbox = Mailbox(clock)
        self.take_in = self._mailbox.put
        self.reading_until_s = self._computing_until_s = self._paused_until_s = 0.0
        self._running: dict[Task, None] = {}
        self._tells_compute, self._tells_waits = recorder.keeps("compute"), recorder.keeps("wait")
        self.ended = False
        self.process: Thread | None = None  # where all nodes share a machine's cores
        self.phase: PredictedTransfer | None = None  # in which a crew sends here
        self.crew: WorkerGroup | None = None  # the members, where this node stands for several
        self.copies = 1  # how many like nodes this one stands for
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.on_missed: Callable[[Message], None] = lambda message: None  # told of what comes when the node has ended

    def fold(self, crew: WorkerGroup) -> None:
        """This node stands for all of the crew."""
        self.crew, self.copies = crew, crew.size

    # ---- the clock ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return float(self._clock.now)

    async def sleep(self, duration_s: float) -> None:
        await Sleep(self._clock, self._clock.now + max(0.0, duration_s))
        await self._awake()

    def pause(self, until_s: float) -> None:
        """Stand still, as a stopped process does: what arrives is not looked at, and what was begun ends later."""
        self._paused_until_s = max(self._paused_until_s, until_s)

    async def _awake(self) -> None:
        while self._paused_until_s > self._clock.now:
            await Sleep(self._clock, self._paused_until_s)

    # ---- messages -----------------------------------------------------------------------------------------------

    async def send(self, to: str, message: Message) -> None:
        peer = self._peers.get(to)
        if peer is None:
            peer = self._peers[to] = self._find(self, to)
        message = self._stamped(message)
        if message.channel:
            return self._send_best_effort(peer, message)
        payload_bytes, header_bytes = wire_bytes(message)
        size_bytes = payload_bytes + header_bytes
        everyone = self.copies * peer.world.copies  # records tell of the messages of all who are folded
        self._recorder.sent(peer.tier, payload_bytes * everyone)
        letter = Envelope(message, payload_bytes * everyone, header_bytes * everyone, peer.world, peer.tier)
        if peer.lanes is not None:
            letter.lanes = peer.lanes.count
            letter.header_bytes += peer.lanes.more_bytes
            return peer.lanes.send(size_bytes, message.priority, letter)
        if self.process is not None:
            return self._send_by_process(self.process, peer, size_bytes, letter)
        connection = peer.connection
        if connection.queued_bytes + size_bytes <= QUEUE_LIMIT_BYTES or connection.idle:
            connection.send(size_bytes, message.priority, letter)
            return None
        return await self._send_when_accepted(peer, size_bytes, letter)

    def _send_by_process(self, process: Thread, peer: Peer, size_bytes: float, letter: Envelope) -> None:
        """The message leaves when this process, on a core that it shares, has got round to it."""
        host, priority, connection = process.host, letter.message.priority, peer.connection
        carrying_s = host.carrying_s(size_bytes) if peer.tier == "wan" else 0.0
        on_start: Callable[[], None] | None = None
        if carrying_s > 0:
            carrier = peer.carrier = peer.carrier or Thread(host)
            letter.carried = False
            on_start = partial(carrier.do, carrying_s, partial(carried, letter))
        process.do(host.message_s(size_bytes), lambda: connection.send(size_bytes, priority, letter, on_start))

    def _send_best_effort(self, peer: Peer, message: Message) -> None:
        assert peer.best_effort is not None, f"channel {message.channel}: this Plan has no best-effort channels"
        payload_bytes = message.payload_bytes
        self._recorder.sent(peer.tier, payload_bytes)
        header_bytes = best_effort_overhead_bytes(message)
        peer.best_effort.send(Envelope(message, payload_bytes, header_bytes, peer.world, peer.tier))

    async def _send_when_accepted(self, peer: Peer, size_bytes: float, letter: Envelope) -> None:
        """Queue it at once, but hold its sender until the queue has room or the message has left it."""
        accepted: VirtualFuture[None] = VirtualFuture(self._clock)

        def started() -> None:
            if not accepted.done():
                accepted.set_result(None)

        peer.connection.on_room = partial(self._release, peer)
        peer.connection.send(size_bytes, letter.message.priority, letter, started)
        if peer.connection.queued_bytes > QUEUE_LIMIT_BYTES and not accepted.done():
            peer.held.append(accepted)
            await accepted

    def _release(self, peer: Peer) -> None:
        if peer.connection.queued_bytes <= QUEUE_LIMIT_BYTES:
            peer.connection.on_room = None
            for accepted in peer.held:
                if not accepted.done():
                    accepted.set_result(None)
            peer.held.clear()

    def _stamped(self, message: Message) -> Message:
        """What the wire would make of it: the receiver gets bytes of its own, stamped with sender and time."""
        if message.sender:  # it was sent before, and belongs to whom it was sent to
            message = replace(message, meta=dict(message.meta))
        message.sender, message.sent_at_s, message.copies = self.node, self._clock.now, self.copies
        for part in message.parts:
            if not part.is_meta:
                message.parts = tuple(part if part.is_meta else part.detach().clone() for part in message.parts)
                break
        return message

    def deliver(self, letter: Envelope, copies: int = 1) -> None:
        """The last byte is here; the message is handed over when this node has looked at those before it.

        ``copies``: of so many folded senders; handed over is the letter of all, with the last of them.
        """
        if not letter.carried:
            letter.arrived = True
            return
        if self.phase is not None:
            self.phase.catch_up()
        letter.lanes -= 1
        if self.process is not None:
            size_bytes = letter.payload_bytes + letter.header_bytes
            self.process.do(self.process.host.message_s(size_bytes), lambda: self._hand_over(letter, last=False))
            return
        cost_s = self._compute.message_cost_s * copies
        if cost_s <= 0:
            if not letter.lanes:
                self._hand_over(letter)
            return
        ready_s = self._read(self._clock.now, cost_s)
        if not letter.lanes:
            self._clock.at(ready_s, self._hand_over, letter)

    def part_came(self, letter: Envelope, copies: int, at_s: float) -> None:
        """As ``deliver`` at a time that is over, for a part that was not the last one."""
        letter.lanes -= 1
        self._read(at_s, self._compute.message_cost_s * copies)

    def _read(self, at_s: float, cost_s: float) -> float:
        """Look at what has come, after what came before it; returns when that is done."""
        self.reading_until_s = (at_s if at_s > self.reading_until_s else self.reading_until_s) + cost_s
        return self.reading_until_s

    def _hand_over(self, letter: Envelope, last: bool = True) -> None:
        """``last``: nothing else is done by this event."""
        if self.ended:
            self.on_missed(letter.message)
            return
        if self._paused_until_s > self._clock.now:
            self._clock.at(self._paused_until_s, self._hand_over, letter)
            return
        message = letter.message
        self._recorder.arrived(message, letter.payload_bytes, letter.header_bytes, letter.tier, self._clock.now)
        self.take_in(message, last)

    def lost(self, peer: str, why: str) -> None:
        """This world tells its node that a peer is gone."""
        if not self.ended:
            self.take_in(Message(MessageKind.LOST, meta={"why": why}, sender=peer, sent_at_s=self.now()))

    def forget(self, peer: str) -> None:
        """That peer is a new process: what was on its way to the one before is lost."""
        self._peers.pop(peer, None)

    async def receive(self, waiting_for: str, deadline_s: float | None = None) -> Message:
        arrival = self._mailbox.next()
        if deadline_s == math.inf:  # who waits like this has nothing to do, and holds nothing up: no named wait
            return await arrival
        try:
            return await self.wait(arrival, waiting_for, deadline_s)
        finally:
            if not arrival.done():
                self._mailbox.give_up(arrival)

    def serve(self, handle: Handle) -> Awaitable[None]:
        return self._mailbox.serve(handle)

    # ---- waits and tasks ----------------------------------------------------------------------------------------

    async def wait(self, future: Future[T], waiting_for: str, deadline_s: float | None = None) -> T:
        assert isinstance(future, VirtualFuture), "a world awaits only what it made itself"
        if isinstance(future, TaskFuture):
            future.asked_for = True
        if future.done():
            done: T = future.result()
            return done
        deadline_s = self._step_deadline_s if deadline_s is None else max(0.0, deadline_s)
        wait = self._waits.enter(self.node, waiting_for, deadline_s, future)
        try:
            await wait
        finally:
            self._waits.leave(wait)
        if wait.expired:
            raise self._waits.error(wait)
        now = self._clock.now
        idle = deadline_s == math.inf  # whoever waits without a deadline has nothing to do, and holds nothing up
        if now > wait.since_s and not idle and self._tells_waits:
            self._recorder.write("wait", now, {"t0": microseconds(wait.since_s), "waiting_for": waiting_for})
        result: T = future.result()
        return result

    def future(self) -> VirtualFuture[Any]:
        return VirtualFuture(self._clock)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Future[T]:
        task = TaskFuture(self._clock)
        self._running[Task(self._clock, coroutine, self._task_ended, task)] = None
        return task

    def run(self, coroutine: Coroutine[Any, Any, Any], on_end: Callable[[Any], None]) -> None:
        """Run the node's role; ``on_end(result)`` when it returns, ``on_failure`` when it (or a task) raises."""
        self._running[Task(self._clock, coroutine, self._role_ended, on_end)] = None

    def fail(self, error: BaseException) -> None:
        """End this node with ``error``, unless another came first."""
        if not self.ended:
            self.on_failure(error)

    def _role_ended(self, fiber: Task, result: Any, error: BaseException | None) -> None:
        self._running.pop(fiber, None)
        if error is not None:
            self.fail(error)
        else:
            fiber.of(result)

    def _task_ended(self, fiber: Task, result: Any, error: BaseException | None) -> None:
        self._running.pop(fiber, None)
        task: TaskFuture = fiber.of
        if error is None:
            task.set_result(result)
        elif task.asked_for and not isinstance(error, KeyboardInterrupt):
            task.set_exception(error)
        else:
            self.fail(error)

    def close(self) -> None:
        """The node is gone: what still runs is stopped, what still arrives is dropped."""
        self.ended = True
        for fiber in list(self._running):
            if fiber is not self._clock.running:
                fiber.close()
        self._running.clear()
        for message in self._mailbox.close():
            self.on_missed(message)

    # ---- computation --------------------------------------------------------------------------------------------

    async def compute(self, work: Work, function: Callable[[], T]) -> T:
        if self._computing_until_s > self._clock.now:  # one device: pieces of work take turns
            await self._turn()
        start_s = self._clock.now
        if self.crew is not None and work.kind == "step":
            duration_s = max(0.0, self.crew.work(work.steps, start_s) - start_s)
        else:
            duration_s = self._compute.duration_s(work, self.pacer, start_s)
        self._computing_until_s = start_s + duration_s
        result = function()
        if self.process is not None and work.kind != "script":
            await self._on_a_core(self.process, work)
            duration_s = max(self._clock.now - start_s, duration_s if work.kind == "step" else 0.0)
            self._computing_until_s = start_s + duration_s
        await Sleep(self._clock, self._computing_until_s)
        if self._paused_until_s > self._clock.now:
            await self._awake()
        if self._tells_compute:
            fields = {
                "t0": microseconds(start_s), "work": work.kind, "round": work.round,
                "modelled_s": duration_s, "real_s": duration_s, "overrun": False, **work.noted(),
            }  # fmt: skip
            self._recorder.write("compute", self._clock.now, fields)
        return result

    async def _on_a_core(self, process: Thread, work: Work) -> None:
        """Returns when a core has really done the work. A step has a thread of its own, and is paced beside."""
        future: VirtualFuture[None] = VirtualFuture(self._clock)
        host = process.host.plan
        if work.kind == "step":
            Thread(process.host).do(host.step_s * work.steps, lambda: future.set_result(None))
        else:
            work_s = self._compute.work_overhead_s + work.size_bytes * host.memory_s
            process.do(work_s, lambda: future.set_result(None))
        await future

    async def _turn(self) -> None:
        while self._computing_until_s > self._clock.now:
            await Sleep(self._clock, self._computing_until_s)

    def aside(self, function: Callable[[], T]) -> Future[T]:
        future: VirtualFuture[T] = VirtualFuture(self._clock)
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future

    # ---- records ------------------------------------------------------------------------------------------------

    def record(self, kind: str, **fields: Any) -> None:
        if kind == "start" and self.copies > 1:
            fields["stands_for"] = self.copies
        self._recorder.write(kind, self._clock.now, fields)
