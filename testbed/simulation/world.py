"""The virtual world: ``testbed.world.World`` on the virtual clock, the flow network and the compute model."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from testbed.compute_model import ComputeModel
from testbed.messages import Message
from testbed.plan.instant import Instant
from testbed.simulation.clock import Clock, Sleep, VirtualFuture
from testbed.simulation.compute import SimulatedProcessor
from testbed.simulation.inbox import SimulatedInbox
from testbed.simulation.node import SimulatedNode
from testbed.simulation.outbox import Peer, SimulatedOutbox
from testbed.simulation.recorder import VirtualRecorder
from testbed.simulation.task import Task, TaskFuture
from testbed.simulation.waits import Waits
from testbed.world import Future

T = TypeVar("T")

_LOOK_S = 1e-3  # interval of checks whether the network is at rest


class SimulatedWorld:
    """See ``testbed.world.World``. ``connect(self, name)`` makes the ``Peer`` of another node.

    ``on_failure(error)`` is called when the role, or a task whose result nothing awaits, raises.
    ``on_settle(resumed)`` returns the present instant with the state of all connections, or ``None`` while any of them
    carries something; see ``settle``. ``on_aside(to, message)`` brings a message to another node outside the network.
    """

    call_from_thread: Callable[[Callable[[], None]], object] | None = None

    def __init__(
        self,
        node: SimulatedNode,
        clock: Clock,
        waits: Waits,
        recorder: VirtualRecorder,
        compute: ComputeModel,
        step_deadline_s: float,
        connect: Callable[[SimulatedWorld, str], Peer],
    ) -> None:
        self.node = node.name
        self.host = node.host
        self.pacer = node.pacer
        self.state = node
        self._clock = clock
        self._waits = waits
        self._recorder = recorder
        self._step_deadline_s = step_deadline_s
        self.inbox = SimulatedInbox(node, clock, recorder, compute.message_cost_s)
        self.outbox = SimulatedOutbox(node, clock, recorder, partial(connect, self))
        self.send = self.outbox.send
        self.drain = self.outbox.drain
        self.serve = self.inbox.serve
        self.future: Callable[[], VirtualFuture[Any]] = partial(VirtualFuture, clock)
        self.compute = SimulatedProcessor(node, clock, compute, recorder).compute
        self._tasks: dict[Task, None] = {}
        self._records_waits = recorder.keeps("wait")
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self.on_settle: Callable[[Instant | None], Instant | None] = lambda instant: Instant(clock.now)
        self.on_aside: Callable[[str, Message], None] = lambda to, message: None

    def now(self) -> float:
        return float(self._clock.now)

    async def send_aside(self, to: str, message: Message) -> None:
        message.sender = self.node
        message.sent_at_s = self._clock.now
        message.began_s = self._clock.now
        self.on_aside(to, message)

    async def sleep(self, duration_s: float) -> None:
        await Sleep(self._clock, self._clock.now + max(0.0, duration_s))
        await self.state.resumed(self._clock)

    async def settle(self, instant: Instant | None = None) -> Instant:
        if instant is not None:
            await Sleep(self._clock, instant.at_s)
        while (settled := self.on_settle(instant)) is None:
            await Sleep(self._clock, self._clock.now + _LOOK_S)
        return settled

    def forget(self, node: str, before_s: float) -> None:
        self.outbox.drop(node)  # the receiver drops messages in flight

    async def receive(self, waiting_for: str, deadline_s: float | None = None) -> Message:
        arrival = self.inbox.next()
        if deadline_s == math.inf:  # an idle receiver delays nothing, so its wait gets no name
            return await arrival
        try:
            return await self.wait(arrival, waiting_for, deadline_s)
        finally:
            if not arrival.done():
                self.inbox.withdraw(arrival)

    async def wait(self, future: Future[T], waiting_for: str, deadline_s: float | None = None) -> T:
        assert isinstance(future, VirtualFuture), "a world awaits only futures that it made itself"
        if isinstance(future, TaskFuture):
            future.awaited = True
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
        if now > wait.since_s and deadline_s < math.inf and self._records_waits:
            self._recorder.waited(wait.since_s, waiting_for, now)
        result: T = future.result()
        return result

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Future[T]:
        future = TaskFuture(self._clock)
        self._tasks[Task(self._clock, coroutine, self._task_ended, future)] = None
        return future

    def run(self, role: Coroutine[Any, Any, Any], on_end: Callable[[Any], None]) -> None:
        """Run the node's role. Call ``on_end(result)`` when it returns, ``on_failure`` when it raises."""
        self._tasks[Task(self._clock, role, self._role_ended, on_end)] = None

    def _role_ended(self, task: Task, result: Any, error: BaseException | None) -> None:
        self._tasks.pop(task, None)
        if error is not None:
            self._fail(error)
        else:
            task.context(result)

    def _task_ended(self, task: Task, result: Any, error: BaseException | None) -> None:
        self._tasks.pop(task, None)
        future: TaskFuture = task.context
        if error is None:
            future.set_result(result)
        elif future.awaited and not isinstance(error, KeyboardInterrupt):
            future.set_exception(error)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.state.ended:
            self.on_failure(error)

    def close(self) -> None:
        """End the node: close its tasks, and take no further message."""
        self.state.ended = True
        for task in list(self._tasks):
            if task is not self._clock.current_task:
                task.close()
        self._tasks.clear()
        self.inbox.close()

    def aside(self, function: Callable[[], T]) -> Future[T]:
        future: VirtualFuture[T] = VirtualFuture(self._clock)
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future

    def record(self, kind: str, **fields: Any) -> None:
        if kind == "start" and self.state.copies > 1:
            fields["stands_for"] = self.state.copies
        self._recorder.write(kind, self._clock.now, fields)
