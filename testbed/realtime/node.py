"""One node from its first connection to its orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from testbed.devices.accelerator import accelerator_of, timed_on_host
from testbed.placing import place_of
from testbed.plan.pace import Pacer
from testbed.realtime.cores import processor_timed
from testbed.realtime.network import Network
from testbed.realtime.processor import Processor
from testbed.realtime.setup import NodeSetup
from testbed.realtime.world import EventRecorder, RealWorld
from testbed.results.events import STOPPED, EventLog
from testbed.results.progress import Progress

STATUS_INTERVAL_S = 0.5
_FIRST_STATUSES = 6  # the log is flushed more often until then, as a user may watch how the run begins
_FIRST_FLUSHES = 5

AnyRole = Callable[[RealWorld], Awaitable[Any]]
OnMade = Callable[[RealWorld], None]


async def run_node(
    setup: NodeSetup, role: AnyRole, log: EventLog, progress: Progress, on_made: OnMade = lambda world: None
) -> Any:
    """Run ``role`` in a ``RealWorld`` to its end, and leave in good order; return the role's result.

    An error of the role, of a task that it spawned, or of the network ends the node at once: it is recorded as an
    ``error`` event and raised, and the peers see a crash. If this coroutine is cancelled, the node sends CLOSE frames,
    so that its peers see that it has left.
    """
    timeouts = setup.plan.timeouts
    accelerator = accelerator_of(place_of(setup.plan, setup.plan.node(setup.name)))
    timed = accelerator.timed if accelerator else timed_on_host
    codec_timed = timed_on_host
    if setup.plan.exact is not None and setup.plan.exact.cpu == "measured":
        timed = codec_timed = processor_timed
    processor = Processor(setup.tokens, timeouts.step_deadline_s, timed, codec_timed)
    recorder = EventRecorder(setup.name, log, progress)
    world = RealWorld(setup.plan, setup.name, setup.epoch_ns, recorder, processor, setup.limits.inbox_bytes)
    world.pacer = Pacer(setup.plan.node(setup.name).device, setup.plan.seed, setup.name, setup.since_s)
    world.network = network = Network(setup, world)
    first = 0 if setup.plan.is_exact else _FIRST_STATUSES
    reporter = asyncio.create_task(_report(world, log, first))
    on_made(world)
    try:
        network.start()
        result = await _unless_failed(world, role(world))
        await _unless_failed(world, world.leave(timeouts.run_deadline_s))
        world.status()
        return result
    except asyncio.CancelledError:
        world.record("error", message="stopped before its end", cause=STOPPED)
        network.leave()
        raise
    except BaseException as error:
        world.record("error", message=str(error), cause=type(error).__name__)
        raise
    finally:
        reporter.cancel()
        network.close()
        world.close()
        processor.close()


async def _unless_failed(world: RealWorld, awaitable: Awaitable[Any]) -> Any:
    """Return the awaitable's result; raise its error, or the error that ends the node meanwhile."""
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait([task, world.failure], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else world.failure.result()
    finally:
        task.cancel()


async def _report(world: RealWorld, log: EventLog, first: int) -> None:
    try:
        for _ in range(first):
            for _ in range(_FIRST_FLUSHES):
                await asyncio.sleep(STATUS_INTERVAL_S / _FIRST_FLUSHES)
                log.flush()
            world.status()
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            world.status()
    except Exception as error:  # such as a full disk; without status lines, the run would seem to make no progress
        world.fail(error)
