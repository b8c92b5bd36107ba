"""The processor of a simulated node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from testbed.compute_model import ComputeModel
from testbed.costs import CODING, COPY
from testbed.devices.accelerator import Accelerator
from testbed.simulation.clock import Clock, Sleep, VirtualFuture
from testbed.simulation.node import SimulatedNode
from testbed.simulation.recorder import VirtualRecorder
from testbed.simulation.step_threads import done_now
from testbed.world import Work

T = TypeVar("T")


class SimulatedProcessor:
    """The device of one node: one piece of work at a time, in the order of the calls."""

    def __init__(self, node: SimulatedNode, clock: Clock, model: ComputeModel, recorder: VirtualRecorder) -> None:
        self._node = node
        self._clock = clock
        self._model = model
        self._recorder = recorder
        self._records = recorder.keeps("compute")
        self._step: Future[Any] | None = None  # the step that is being computed, perhaps in a thread
        self._held = False  # whether the device does a piece of work
        self._turns: deque[VirtualFuture[None]] = deque()  # calls that wait for the device
        node.coding.duration_s = lambda work: model.duration_s(work, node.pacer, clock.now)

    async def compute(self, work: Work, function: Callable[[], T]) -> T:
        """Run ``function`` at this instant and return its result after the modelled time of ``work``."""
        if self._node.accelerator is not None:
            function = partial(_complete, self._node.accelerator, function)
        if work.kind == COPY and not self._model.copies_cost:
            if self._step is not None:
                wait([self._step])  # the step began before, and may read the values that ``function`` changes
            return function()
        if work.kind in CODING:
            return await self._code(work, function)
        if self._held:
            await self._turn()
        self._held = True
        try:
            return await self._work(work, function)
        finally:
            self._pass_on()

    async def _turn(self) -> None:
        """Wait until all earlier calls are done. Calls made meanwhile come later."""
        turn: VirtualFuture[None] = VirtualFuture(self._clock)
        self._turns.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done():
                self._pass_on()
            else:
                self._turns.remove(turn)
            raise

    def _pass_on(self) -> None:
        """Give the device to the next call, after a piece of work."""
        self._held = bool(self._turns)
        if self._turns:
            self._turns.popleft().set_result(None)

    async def _work(self, work: Work, function: Callable[[], T]) -> T:
        node = self._node
        clock = self._clock
        start_s = clock.now
        if node.group is not None and work.kind == "step":
            duration_s = max(0.0, node.group.work(work.steps, start_s) - start_s)
        else:
            duration_s = self._model.duration_s(work, node.pacer, start_s)
            if node.group is not None:
                duration_s = node.group.work_after(duration_s, start_s) - start_s
        if work.kind == "step":
            result = await self._step_until(start_s + duration_s, function)
        else:
            result = function()
            await Sleep(clock, start_s + duration_s)
        if node.paused_until_s > clock.now:
            await node.resumed(clock)
        if self._records:
            self._recorder.computed(work, start_s, duration_s, clock.now)
        return result

    async def _step_until(self, end_s: float, function: Callable[[], T]) -> T:
        """Compute a step while virtual time passes. At ``end_s``, return its result or raise its error."""
        threads = self._node.threads
        begun: Future[T] = done_now(function) if threads is None else threads.submit(function)
        self._step = begun
        try:
            await Sleep(self._clock, end_s)
        finally:
            if not begun.done():
                wait([begun])  # even if the node has ended, as another process may take over its model
            self._step = None
        return begun.result()

    async def _code(self, work: Work, function: Callable[[], T]) -> T:
        """Run a codec now. Return its result when the codec core has finished this work and all work before it."""
        node = self._node
        clock = self._clock
        result = function()
        duration_s = self._model.duration_s(work, node.pacer, clock.now)
        if duration_s <= 0:
            return result
        if work.done_s:  # the core has already taken each contribution of folded workers as it arrived
            end_s = max(clock.now, work.done_s)
        elif node.group is not None:
            end_s = node.group.code(duration_s, clock.now)
        else:
            end_s = node.coding.take(clock.now, duration_s)
        start_s = max(clock.now, end_s - duration_s)
        await Sleep(clock, end_s)
        duration_s = clock.now - start_s
        await node.resumed(clock)
        if self._records:
            self._recorder.computed(work, start_s, duration_s, clock.now)
        return result


def _complete(accelerator: Accelerator, function: Callable[[], T]) -> T:
    """Return the value of ``function`` when all work that it has begun on the GPU is done."""
    value, _seconds = accelerator.timed(function)
    return value
