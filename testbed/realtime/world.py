"""The real world: ``testbed.world.World`` on asyncio, TCP sockets, threads and the machine's monotonic clock."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.compute_model import ComputeModel
from testbed.costs import CODING, COPY, USER_CODE
from testbed.errors import WaitTimeout
from testbed.ids import data_center_of
from testbed.messages import Message, MessageKind
from testbed.plan.instant import Instant
from testbed.plan.model import Plan
from testbed.plan.pace import Pacer
from testbed.realtime.cores import Cores
from testbed.realtime.frames import Arrival
from testbed.realtime.network import Network
from testbed.realtime.processor import Processor
from testbed.results.events import EventLog, Transfer
from testbed.results.progress import NodeProgress, Progress
from testbed.world import Future, Work, World

T = TypeVar("T")

# Smaller work, as on slices of the least size, runs on the event loop: handing it to a thread would take longer.
INLINE_BYTES = 1_500_000
_MADE_UP_S = 0.1  # the next sleep makes up for a timer that was late by less than this; later ones were a pause


class EventRecorder(NodeProgress):
    """Records events of one node in its log on disk, and sends lines of progress to the process that watches the run.

    ``activity`` counts transfers, computations and rounds.
    """

    def __init__(self, node: str, log: EventLog, progress: Progress) -> None:
        super().__init__(node, progress)
        self._log = log
        self._tiers: dict[str, str] = {}  # by peer

    def write(self, kind: str, t: float, fields: dict[str, Any]) -> None:
        """Write one event, which happened at ``t`` seconds of the run."""
        self._log.write(kind, t, **fields)
        self.activity += kind in ("transfer", "compute", "round")
        self.pass_on(kind, t, fields)

    def sent(self, to: str, message: Message) -> None:
        if (self._tiers.get(to) or self._tier(to)) == "wan":
            self.up_bytes += message.payload_bytes

    def arrived(self, message: Message, payload_bytes: int, overhead_bytes: int, t: float) -> None:
        """Count a complete message; if it came on the reliable channel, write its ``transfer`` event.

        For best-effort messages, the receiver writes one event for many messages.
        """
        tier = self._tiers.get(message.sender) or self._tier(message.sender)
        if tier == "wan":
            self.down_bytes += payload_bytes
        self.activity += 1
        if message.channel:
            return
        self._log.append(
            Transfer(
                round(t, 6),
                "transfer",
                self.node,
                round(message.sent_at_s, 6),
                message.sender,
                self.node,
                message.kind._value_,
                message.key,
                message.round,
                payload_bytes,
                overhead_bytes,
                tier,
            )
        )

    def library_transfer(self, t: float, source: str, payload_bytes: int, fields: dict[str, Any]) -> None:
        """Write the ``transfer`` event of bytes that a library's own connection carried, without headers of ours."""
        tier = self._tier(source)
        if tier == "wan":
            self.down_bytes += payload_bytes
        about = {"source": source, "target": self.node, "payload_bytes": payload_bytes, "header_bytes": 0, "tier": tier}
        self.write("transfer", t, {**fields, **about})

    def status(self, t: float, waits: list[tuple[str, float]]) -> None:
        """Report progress and current waits to the watcher, and flush the log so that a crash loses little of it."""
        self._log.flush()
        super().status(t, waits)

    def _tier(self, peer: str) -> str:
        tier = self._tiers[peer] = "lan" if data_center_of(peer) == data_center_of(self.node) else "wan"
        return tier


class Spawned:
    """The result of a spawned coroutine. If it is never ``awaited``, its error ends the node."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.awaited = False

    def done(self) -> bool:
        return self.task.done()

    def set_result(self, value: Any, /) -> None:
        raise RuntimeError("a task sets its own result")

    def set_exception(self, error: BaseException, /) -> None:
        raise RuntimeError("a task sets its own result")

    def __await__(self) -> Generator[Any, None, Any]:
        self.awaited = True
        return asyncio.shield(self.task).__await__()


_BESIDE_THE_DEVICE = (*CODING, COPY, USER_CODE)


class RealWorld:
    """See ``testbed.world.World``. Made inside the event loop; ``network`` and ``pacer`` are set before a role runs.

    ``epoch_ns``: the run's start on CLOCK_MONOTONIC, which all processes of a machine share. ``failure`` becomes the
    error that ends this node.
    """

    network: Network
    pacer: Pacer

    def __init__(
        self,
        plan: Plan,
        node: str,
        epoch_ns: int,
        recorder: EventRecorder,
        processor: Processor,
        inbox_limit_bytes: int,
    ) -> None:
        self.node = node
        self._plan = plan
        self._device = plan.node(node).device
        self._inbox_limit_bytes = inbox_limit_bytes
        self._epoch_ns = epoch_ns
        self._recorder = recorder
        self._processor = processor
        self._loop = asyncio.get_running_loop()
        self.call_from_thread: Callable[[Callable[[], None]], object] | None = self._loop.call_soon_threadsafe
        self._inbox: deque[tuple[Message, int]] = deque()  # with the bytes of their payloads
        self._inbox_bytes = 0
        self._reading = True
        self._arrival: asyncio.Future[None] = self._loop.create_future()
        self._waits: dict[int, tuple[str, float]] = {}
        self._wait_count = 0
        # How late the last timer of a step was: up to 1 ms by the event loop alone. The next sleep is shorter by this;
        # else each part of a step would take longer by it. A pause is part of the run, so no sleep makes up for it.
        self._overslept_s = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cpu_begin_s = 0.0
        self.failure: asyncio.Future[None] = self._loop.create_future()
        cpu = "" if plan.exact is None else plan.exact.cpu
        takes_time = cpu in ("modelled", "measured")
        self._cores = Cores(ComputeModel().of_plan(plan), self.now, cpu == "measured") if takes_time else None
        # The device counts as busy until the modelled time of a step has passed. ``Cores`` ensure this by themselves.
        steps_pass = plan.node(node).role == "worker" and self._device.pace == "paced" and not takes_time
        self._turn = asyncio.Lock() if steps_pass else None  # grants the device in the order of the calls

    # ---- the clock ----------------------------------------------------------------------------------------------

    def now(self) -> float:
        return max(0, time.monotonic_ns() - self._epoch_ns) / 1e9

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)

    # ---- messages -----------------------------------------------------------------------------------------------

    async def send(self, to: str, message: Message) -> None:
        message.sender = self.node
        message.sent_at_s = self.now()
        self._recorder.sent(to, message)
        held_up = self.network.send(to, message)
        if held_up is not None:
            await held_up

    async def send_aside(self, to: str, message: Message) -> None:
        message.sender = self.node
        message.sent_at_s = self.now()
        held_up = self.network.send(to, message, aside=True)
        if held_up is not None:
            await held_up

    async def drain(self, to: str) -> None:
        await self.network.drain(to)

    def forget(self, node: str, before_s: float) -> None:
        self.network.forget(node, before_s + self._epoch_ns / 1e9)

    async def settle(self, instant: Instant | None = None) -> Instant:
        return Instant(self.now())

    async def receive(self, waiting_for: str, deadline_s: float | None = None) -> Message:
        end_s = self.now() + self._deadline(deadline_s)
        while not self._inbox:
            await self._named_wait(self._arrival, waiting_for, end_s - self.now(), deadline_s)
        if self._cores is not None:
            await self._cores.read_message()
        return self._take()

    def _take(self) -> Message:
        message, payload_bytes = self._inbox.popleft()
        self._count_inbox(-payload_bytes)
        return message

    async def serve(self, handle: Callable[[Message], bool]) -> None:
        while True:
            while not self._inbox:
                await self._arrival
            if self._cores is not None:
                await self._cores.read_message()
            if not handle(self._take()):  # takes all messages in the inbox within one turn of the loop
                return

    def deliver(self, arrival: Arrival, began_s: float, aside: bool = False) -> None:
        """Take a complete message from the network. ``began_s``: when its transfer began, on the loop's clock.

        A message sent ``aside`` is not recorded, as it is not a transfer of the run.
        """
        message, overhead_bytes, _, payload_bytes = arrival
        message.began_s = max(0.0, began_s - self._epoch_ns / 1e9)
        if not aside:
            self._recorder.arrived(message, payload_bytes, overhead_bytes, self.now())
        self._inbox.append((message, payload_bytes))
        self._count_inbox(payload_bytes)
        self._wake_receiver()

    def on_peer_lost(self, peer: str, why: str) -> None:
        """Tell the role that a peer is lost and the run continues without it. Called by the network."""
        self._inbox.append((Message(MessageKind.LOST, meta={"why": why}, sender=peer, sent_at_s=self.now()), 0))
        self._wake_receiver()

    def request_leave(self) -> None:
        """Ask the role to leave in good order."""
        self._inbox.append((Message(MessageKind.LEAVE, sender=self.node, sent_at_s=self.now()), 0))
        self._wake_receiver()

    def _wake_receiver(self) -> None:
        if len(self._inbox) == 1:  # else the receiver has been woken already
            arrival, self._arrival = self._arrival, self._loop.create_future()
            if not arrival.done():  # its task may have been cancelled
                arrival.set_result(None)

    def _count_inbox(self, change_bytes: int) -> None:
        self._inbox_bytes += change_bytes
        reading = self._inbox_bytes <= self._inbox_limit_bytes
        if reading != self._reading:
            self._reading = reading
            self.network.pause_reading(not reading)

    # ---- waits and tasks ----------------------------------------------------------------------------------------

    async def wait(self, future: Future[T], waiting_for: str, deadline_s: float | None = None) -> T:
        if isinstance(future, Spawned):
            future.awaited, future = True, future.task
        assert isinstance(future, asyncio.Future), "a world awaits only what it made itself"
        if not future.done():
            await self._named_wait(future, waiting_for, self._deadline(deadline_s), deadline_s)
        return future.result()  # type: ignore[no-any-return]

    async def _named_wait(
        self,
        future: asyncio.Future[Any],
        waiting_for: str,
        left_s: float,
        deadline_s: float | None,
        recorded: bool = True,
    ) -> None:
        """Wait until ``future`` is done; raise ``WaitTimeout`` after ``left_s``, without cancelling it."""
        since_s = self.now()
        named = deadline_s != math.inf  # a node that waits without a deadline is idle, and delays no other
        number = self._wait_count = self._wait_count + 1
        if named:
            self._waits[number] = (waiting_for, since_s)
        try:
            done, _ = await asyncio.wait([future], timeout=max(0.0, left_s))
        finally:
            self._waits.pop(number, None)
        if not done:
            raise WaitTimeout(self.node, waiting_for, since_s, self._deadline(deadline_s))
        if named and recorded:
            self.record("wait", t0=round(since_s, 6), waiting_for=waiting_for)

    async def leave(self, deadline_s: float) -> None:
        """After the role, let the network end in good order. This wait is not recorded, as training is over."""
        task = self._loop.create_task(self.network.finish())
        self.spawn(self.serve(self._on_missed), "messages after the end")
        try:
            await self._named_wait(task, "the end of the run", deadline_s, deadline_s, recorded=False)
            task.result()
        finally:
            task.cancel()

    def _on_missed(self, message: Message) -> bool:
        if message.kind is MessageKind.REGISTER:  # from a node that has started again as the run ends
            self.network.turn_away(message.sender)
        return True

    def waits(self) -> list[tuple[str, float]]:
        """Return what this node waits for, and since when in seconds of the run; the longest wait first."""
        return sorted(self._waits.values(), key=lambda wait: wait[1])

    def _deadline(self, deadline_s: float | None) -> float:
        return self._plan.timeouts.step_deadline_s if deadline_s is None else deadline_s

    def future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def run_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine as a task whose error ends this node. Called by the network."""
        return self.spawn(coroutine, name).task

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Spawned:
        task = self._loop.create_task(coroutine, name=name)
        spawned = Spawned(task)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._on_task_done(spawned))
        return spawned

    def _on_task_done(self, spawned: Spawned) -> None:
        self._tasks.discard(spawned.task)
        error = None if spawned.task.cancelled() else spawned.task.exception()
        if error is not None and not spawned.awaited:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End this node with ``error``, unless an earlier error is ending it."""
        if not self.failure.done():
            self.failure.set_exception(error)

    # ---- computation --------------------------------------------------------------------------------------------

    async def compute(self, work: Work, function: Callable[[], T]) -> T:
        if self._turn is None or work.kind in _BESIDE_THE_DEVICE:
            return await self._compute(work, function)
        async with self._turn:
            return await self._compute(work, function)

    async def _compute(self, work: Work, function: Callable[[], T]) -> T:
        if self._cores is not None and work.kind == "step":
            await self._cores.free()
        start_s = self.now() if work.began_s is None else work.began_s
        if work.kind == "step":
            return await self._step(work, function, start_s)
        if work.kind == USER_CODE:
            value, real_s = await self._processor.step(function)
            if self._passes_afterwards():
                await asyncio.sleep(self.pacer.measured_s(real_s, start_s))
            return value
        if work.kind in CODING:
            assert work.cost is not None, "a codec's work has a cost"
            value, real_s = await self._processor.code(work.cost.row, work.elements, function)
        else:
            inline = work.size_bytes <= INLINE_BYTES
            value, real_s = self._processor.timed(function) if inline else await self._processor.run(function)
            if work.kind == COPY and (self._cores is None or not self._cores.copies_cost):
                return value
        modelled_s = await self._cores.spend(work, self.pacer, real_s) if self._cores is not None else 0.0
        self._record_compute(work, start_s, modelled_s, real_s, overrun=False)
        return value

    async def _step(self, work: Work, function: Callable[[], T], start_s: float) -> T:
        modelled_s = self.pacer.duration_s(work.steps, start_s)
        paced = waits = self._device.pace == "paced"
        if self._cores is not None and paced:
            self._cores.step_until(start_s + modelled_s)
        if work.began_s is not None:
            value = function()
            real_s = self.now() - start_s
        else:
            value, real_s = await self._processor.step(function)
            if self._cores is not None and self._passes_afterwards():
                modelled_s = self.pacer.measured_s(real_s, start_s)
                waits = True
                self._cores.step_until(start_s + modelled_s)
        left_s = start_s + modelled_s - self.now()
        if waits and left_s > 0:
            end_s = start_s + modelled_s - self._overslept_s
            await asyncio.sleep(end_s - self.now())
            late_s = self.now() - end_s
            self._overslept_s = late_s if 0 < late_s < _MADE_UP_S else 0.0
        self._record_compute(work, start_s, modelled_s, real_s, overrun=paced and left_s < 0)
        return value

    def _passes_afterwards(self) -> bool:
        """Return whether this node sleeps for the measured time after a step, which takes no time in an exact run."""
        return self._cores is not None and self._cores.measured and self._device.pace == "measured"

    def _record_compute(self, work: Work, start_s: float, modelled_s: float, real_s: float, overrun: bool) -> None:
        self.record(
            "compute",
            t0=round(start_s, 6),
            work=work.kind,
            round=work.round,
            modelled_s=modelled_s,
            real_s=round(real_s, 6),
            overrun=overrun,
            **work.noted(),
        )

    def aside(self, function: Callable[[], T]) -> asyncio.Future[T]:
        return self._processor.aside(function)

    # ---- records ------------------------------------------------------------------------------------------------

    def record(self, kind: str, **fields: Any) -> None:
        if kind == "start":
            self._cpu_begin_s = time.process_time()
        elif kind == "final":
            fields["cpu_s"] = round(time.process_time() - self._cpu_begin_s, 6)
        self._recorder.write(kind, self.now(), fields)

    def record_library_transfer(self, source: str, payload_bytes: int, began_s: float, **fields: Any) -> None:
        """Record bytes that a library's own connection from ``source`` carried in an operation begun at ``began_s``.

        ``fields``: ``message`` (the library's name), ``key`` and ``round``.
        """
        self._recorder.library_transfer(self.now(), source, payload_bytes, {"t0": round(began_s, 6), **fields})

    def warn(self, message: str) -> None:
        self.record("warning", message=message)

    def status(self) -> None:
        """Report progress to the watcher, and processor time to the log."""
        self.record("process", cpu_s=round(time.process_time(), 6))
        self._recorder.status(self.now(), self.waits())

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if not self.failure.cancel():
            self.failure.exception()  # retrieved, so that asyncio does not log it as lost


if TYPE_CHECKING:
    _IMPLEMENTS_WORLD: type[World] = RealWorld
