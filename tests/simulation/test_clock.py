"""Virtual time: the order of events at one instant, tasks, futures, and SimPy's own processes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator

import pytest
from simpy import Event, Resource

from testbed.simulation.clock import Clock, Sleep, VirtualFuture
from testbed.simulation.task import Task
from tests.for_each import for_each


def _ended(task: Task, result: object, error: BaseException | None) -> None:
    assert error is None


def test_coincident_events_stay_coincident_and_in_order() -> None:
    """``0.1 + (0.3 - 0.1)`` is not 0.3; nothing here computes that."""
    clock, seen = Clock(), []
    clock.at(0.1, lambda _: clock.at(0.3, lambda _: seen.append(("second", clock.now))))
    clock.at(0.3, lambda _: seen.append(("first", clock.now)))
    clock.run()
    assert seen == [("first", 0.3), ("second", 0.3)]


def test_the_end_of_an_instant_comes_after_all_of_it_also_what_it_caused() -> None:
    clock, seen = Clock(), []

    def at_one(_: object) -> None:
        clock.at_end_of_instant(lambda _: seen.append("end"))
        clock.at(1.0, lambda _: seen.append("caused"))

    clock.at(1.0, at_one)
    clock.at(1.0, lambda _: seen.append("beside"))
    clock.at(2.0, lambda _: seen.append("later"))
    clock.run()
    assert seen == ["beside", "caused", "end", "later"]


def test_the_end_of_the_last_instant_comes_too() -> None:
    clock, seen = Clock(), []
    clock.at(1.0, lambda _: clock.at_end_of_instant(lambda _: seen.append(clock.now)))
    clock.run()
    assert seen == [1.0]


def test_a_task_begins_when_its_maker_has_returned_to_the_clock() -> None:
    clock, seen = Clock(), []

    async def child() -> None:
        seen.append("child")
        await Sleep(clock, 2.0)
        seen.append("child again")

    async def parent() -> None:
        Task(clock, child(), lambda task, result, error: seen.append("child has ended"))
        seen.append("parent")
        await Sleep(clock, 1.0)
        seen.append("parent again")

    Task(clock, parent(), _ended)
    clock.run()
    assert seen == ["parent", "child", "parent again", "child again", "child has ended"]


def test_several_wait_for_one_future_and_some_only_later() -> None:
    clock, seen = Clock(), []
    future: VirtualFuture[int] = VirtualFuture(clock)

    async def waiter(name: str, until_s: float) -> None:
        await Sleep(clock, until_s)
        seen.append((name, await future, clock.now))

    for name, until_s in (("a", 0.5), ("b", 0.7), ("late", 3.0)):
        Task(clock, waiter(name, until_s), _ended)
    clock.at(1.0, lambda _: future.set_result(7))
    clock.run()
    assert seen == [("a", 7, 1.0), ("b", 7, 1.0), ("late", 7, 3.0)]


def test_a_future_is_set_once_and_may_carry_an_error() -> None:
    clock = Clock()
    future: VirtualFuture[int] = VirtualFuture(clock)
    future.set_exception(ValueError("no"))
    assert future.done()
    with pytest.raises(ValueError, match="no"):
        future.result()
    with pytest.raises(AssertionError, match="only once"):
        future.set_result(1)
    assert clock.peek() == float("inf"), "no task waits for it, so nothing is scheduled"


@for_each("started", [False, True])
def test_a_closed_task_does_nothing_more_and_cleans_up(started: bool) -> None:
    clock, seen = Clock(), []

    async def work() -> None:
        try:
            await Sleep(clock, 5.0)
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    task = Task(clock, work(), lambda task, result, error: seen.append("ended"))
    clock.at(1.0 if started else 0.0, lambda _: seen.append("now"))
    if started:
        while not seen:
            clock.step()
    task.close()
    clock.run()
    assert seen == (["now", "cleaned up"] if started else ["now"])


def test_a_task_that_has_ended_is_freed_without_the_collector() -> None:
    clock = Clock()

    async def work() -> None:
        await Sleep(clock, 1.0)

    task = Task(clock, work(), _ended)
    gone = weakref.ref(task.coroutine)
    gc.disable()
    try:
        clock.run()
        del task
        assert gone() is None
    finally:
        gc.enable()


@for_each("beside", [False, True])
def test_set_last_of_an_instant_a_future_resumes_its_tasks_at_once_but_not_before_other_events(beside: bool) -> None:
    clock, seen = Clock(), []
    future: VirtualFuture[str] = VirtualFuture(clock)

    async def waiter() -> None:
        seen.append(await future)

    def last(_: object) -> None:
        future.set_result_last("woken")
        assert ("woken" in seen) is not beside

    Task(clock, waiter(), _ended)
    clock.at(1.0, last)
    if beside:
        clock.at(1.0, lambda _: seen.append("beside"))
    clock.at(2.0, lambda _: seen.append("later"))
    clock.run()
    assert seen == ["beside", "woken", "later"][not beside :]


def test_simpys_own_processes_run_beside_tasks() -> None:
    clock, seen = Clock(), []

    async def task() -> None:
        await Sleep(clock, 1.5)
        seen.append(("task", clock.now))

    def process() -> Generator[Event, None, None]:
        for _ in range(2):
            yield clock.timeout(1.0)
            seen.append(("process", clock.now))

    clock.process(process())
    Task(clock, task(), _ended)
    clock.run()
    assert seen == [("process", 1.0), ("task", 1.5), ("process", 2.0)]


def test_a_task_that_is_closed_while_it_sleeps_never_resumes() -> None:
    clock, seen = Clock(), []

    async def sleeper() -> None:
        await Sleep(clock, 2.0)
        seen.append("woken")

    task = Task(clock, sleeper(), _ended)
    clock.at(1.0, lambda _: task.close())
    clock.run()
    assert not seen


def test_simpys_resources_conditions_and_until_work_on_this_clock() -> None:
    clock, seen = Clock(), []
    counter = Resource(clock, capacity=1)

    def customer(name: str, service_s: float) -> Generator[Event, None, str]:
        with counter.request() as request:
            yield request
            yield clock.timeout(service_s)
            seen.append((name, clock.now))
        return name

    both = clock.all_of([clock.process(customer("a", 2.0)), clock.process(customer("b", 1.0))])
    clock.run(until=2.5)
    assert (clock.now, seen, clock.peek()) == (2.5, [("a", 2.0)], 3.0)
    assert list(clock.run(until=both).values()) == ["a", "b"]
    assert (seen, clock.peek()) == ([("a", 2.0), ("b", 3.0)], float("inf"))


def test_an_error_of_a_simpy_process_ends_the_run_unless_another_process_handles_it() -> None:
    def failing(clock: Clock) -> Generator[Event, None, None]:
        yield clock.timeout(1.0)
        raise ValueError("no")

    def handling(clock: Clock) -> Generator[Event, None, None]:
        with pytest.raises(ValueError, match="no"):
            yield clock.process(failing(clock))

    alone, handled = Clock(), Clock()
    alone.process(failing(alone))
    with pytest.raises(ValueError, match="no"):
        alone.run()
    handled.process(handling(handled))
    handled.run()
    assert handled.now == 1.0
