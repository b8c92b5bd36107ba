"""Cores of exact runs: what computing takes, modelled or measured, and the loop whose timers are exact enough."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.compute_model import ComputeModel
from testbed.costs import Cost, Row
from testbed.plan.pace import Pacer
from testbed.realtime import cores as host
from testbed.realtime.cores import Cores, precise_loop
from testbed.realtime.world import RealWorld
from testbed.settings.job import Device
from testbed.settings.run import Exact
from testbed.world import Work
from tests.contract.tiny import WORKER, tiny_plan
from tests.descriptors import high_pair
from tests.for_each import for_each
from tests.realtime.in_process import InProcess
from tests.realtime.virtual_loop import VirtualLoop

MODEL = ComputeModel(
    memory_bytes_per_s=1e6, work_overhead_s=0.0, message_cost_s=0.02, costs={"slow encode": Row(0.0, 1e-3)}
)
SUM, ENCODE = Work("sum", size_bytes=30_000), Work("encode", cost=Cost("slow encode", 0.0), elements=50)


def in_virtual_time(program: Callable[[Cores], Coroutine[Any, Any, Any]]) -> Any:
    """What ``program`` returns."""

    async def main() -> Any:
        return await program(Cores(MODEL, asyncio.get_running_loop().time))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def timed_run(*works: Work) -> tuple[list[float], float, float]:
    """What each piece of work says that it took, the time of all side by side, and when the first core was free."""

    async def main(cores: Cores) -> tuple[list[float], float, float]:
        loop, pacer = asyncio.get_running_loop(), Pacer(Device(), 1, "node")
        spending = asyncio.gather(*(cores.spend(work, pacer, 0.0) for work in works))
        await asyncio.sleep(0)
        await cores.free()
        free_s = loop.time()
        return list(await spending), loop.time(), free_s

    found: tuple[list[float], float, float] = in_virtual_time(main)
    return found


def test_one_core_trains_and_sums_and_another_runs_codecs() -> None:
    took_s, all_s, free_s = timed_run(SUM, SUM, ENCODE)
    assert took_s == pytest.approx([0.03, 0.03, 0.05])
    assert free_s == pytest.approx(0.06) and all_s == pytest.approx(0.06), "two sums one after another, beside a codec"


def test_codecs_wait_for_each_other_and_not_for_sums() -> None:
    _, all_s, free_s = timed_run(ENCODE, ENCODE, SUM)
    assert free_s == pytest.approx(0.03) and all_s == pytest.approx(0.1)


def test_a_message_takes_its_time_and_a_sum_waits_for_the_step_under_way() -> None:
    async def main(cores: Cores) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        await cores.read_message()
        read_s = loop.time()
        cores.step_until(0.05)
        await cores.spend(SUM, Pacer(Device(), 1, "node"), 0.0)
        return read_s, loop.time()

    assert in_virtual_time(main) == pytest.approx((0.02, 0.08))


@pytest.mark.wallclock
def test_timers_of_the_loop_are_not_a_millisecond_late() -> None:
    async def main() -> float:
        late = []
        for _ in range(50):
            begin_s = time.monotonic()
            await asyncio.sleep(100e-6)
            late.append(time.monotonic() - begin_s - 100e-6)
        return sorted(late)[5]

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        assert runner.run(main()) < 0.0008


def test_measured_work_takes_what_the_processor_worked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor that has always worked 40 ms when its clock is read again."""
    ticks = iter(range(0, 10**12, 40_000_000))
    monkeypatch.setattr(host, "_processor_ns", lambda: next(ticks))
    device = Device(pace="measured", step_time_s=9.0, speed=0.25, codec_speed=2.0)

    async def role(world: RealWorld) -> list[float]:
        took_s = []
        for work in (Work("step"), ENCODE, SUM, Work("copy")):
            begin_s = world.now()
            assert await world.compute(work, lambda: "value") == "value"
            took_s.append(world.now() - begin_s)
        return took_s

    plan = tiny_plan([WORKER])
    plan = replace(
        plan,
        nodes=(replace(plan.nodes[0], device=device),),
        exact=Exact(memory_bytes=1 << 30, system_call_s=0.0, cpu="measured"),
    )
    run = InProcess()
    took_s = run({WORKER: role}, plan)[WORKER]
    assert all(took >= modelled for took, modelled in zip(took_s, (0.16, 0.02, 0.04, 0.04), strict=True))
    events = [event for event in run.events(WORKER) if event["kind"] == "compute"]
    assert [(each["real_s"], each["modelled_s"]) for each in events] == [
        (0.04, 0.16),
        (0.04, 0.02),
        (0.04, 0.04),
        (0.04, 0.04),
    ]
    assert not any(each["overrun"] for each in events)


def test_timers_of_the_precise_loop_are_not_late_on_purpose() -> None:
    """Linux lets the timers of a thread be 50 us late, which is as much as a message costs."""

    def slack() -> str:
        precise_loop().close()
        return Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(slack).result() == "1\n"


def test_the_precise_loop_lets_other_nodes_have_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the kernel of exact runs they share one; a node that reads packet by packet would keep it for a slice."""
    yields = list[None]()
    monkeypatch.setattr("testbed.realtime.cores.os.sched_yield", lambda: yields.append(None))

    async def turns() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(turns())
    assert len(yields) >= 100


def test_the_precise_loop_takes_descriptors_that_select_does_not() -> None:
    async def exchange(one: socket.socket, other: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reading, writable = loop.create_task(loop.sock_recv(other, 9)), loop.create_future()
        loop.add_writer(one, lambda: writable.done() or writable.set_result(None))
        await writable
        loop.remove_writer(one)
        assert not reading.done()
        await asyncio.sleep(1e-4)
        one.send(b"word")
        assert await reading == b"word"
        reading = loop.create_task(loop.sock_recv(other, 9))
        await asyncio.sleep(0)
        one.close()
        assert await reading == b""

    one, other = high_pair()
    with one, other, asyncio.Runner(loop_factory=precise_loop) as runner:
        other.setblocking(False)
        runner.run(exchange(one, other))


@for_each("inside", [True, False])
def test_memory_is_filled_when_it_is_mapped_in_the_kernel_of_exact_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """In a process of its own, as it is so from then on."""
    clock = tmp_path / "host_cputime"
    monkeypatch.setattr(host, "_HOST_CPUTIME", str(clock))
    if inside:
        clock.touch()
    child = os.fork()
    if not child:
        host.exact_loop().close()
        before = _resident_kb()
        kept = mmap.mmap(-1, 4 << 20)
        os._exit(_resident_kb() - before >= 4096 and len(kept) > 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == inside


def _resident_kb() -> int:
    return int(Path("/proc/self/smaps_rollup").read_text().split("Rss:")[1].split()[0])
