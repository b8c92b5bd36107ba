"""The contract of ``testbed.world.World``: what every world promises, as tests that every world passes.

To use it, inherit and give the fixture::

    class TestMyWorld(WorldContract):
        @pytest.fixture
        def run_worlds(self, tmp_path) -> RunWorlds: ...

Each test runs to its end on its own worlds. Times are bounds, not equalities, so that a busy machine passes too;
what the virtual world promises beyond that (exact times) belongs to its own tests.
"""

from __future__ import annotations

import pytest
import torch

from testbed.errors import RunFailed, WaitTimeout
from testbed.messages import Message, MessageKind, wire_bytes
from testbed.world import Work, World
from tests.contract.messaging import MessageContract
from tests.contract.programs import RunWorlds, idle, receiving, sending
from tests.contract.serving import ServeContract
from tests.contract.tiny import NEIGHBOUR, REMOTE, STEP_TIME_S, TICK_S, WORKER
from tests.for_each import for_each


class WorldContract(MessageContract, ServeContract):
    """Inherit this, and give the fixture ``run_worlds``."""

    # ---- the clock ----------------------------------------------------------------------------------------------

    def test_sleep_lets_at_least_that_much_time_pass(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> tuple[float, float]:
            start_s = world.now()
            await world.sleep(0.05)
            return start_s, world.now()

        start_s, end_s = run_worlds({WORKER: program})[WORKER]
        assert start_s >= 0
        assert end_s - start_s >= 0.05 - TICK_S

    def test_all_nodes_share_one_clock(self, run_worlds: RunWorlds) -> None:
        async def echo(world: World) -> None:
            await world.receive("the question")
            await world.send(WORKER, Message(MessageKind.VALUE, meta={"clock": world.now()}))

        async def ask(world: World) -> tuple[float, float, float]:
            before_s = world.now()
            await world.send(REMOTE, Message(MessageKind.PULL))
            answer = await world.receive("the answer")
            return before_s, answer.meta["clock"], world.now()

        before_s, there_s, after_s = run_worlds({WORKER: ask, REMOTE: echo})[WORKER]
        assert before_s - TICK_S <= there_s <= after_s + TICK_S

    def test_the_worlds_know_their_names(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> str:
            return world.node

        assert run_worlds({WORKER: program, REMOTE: program}) == {WORKER: WORKER, REMOTE: REMOTE}

    # ---- waits and futures --------------------------------------------------------------------------------------

    def test_receive_ends_at_its_deadline(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> tuple[str, str, float, float]:
            with pytest.raises(WaitTimeout) as caught:
                await world.receive("godot", deadline_s=0.05)
            error = caught.value
            assert error.deadline_s == 0.05
            return error.node, error.waiting_for, error.since_s, world.now()

        node, waiting_for, since_s, at_s = run_worlds({WORKER: program, REMOTE: idle})[WORKER]
        assert (node, waiting_for) == (WORKER, "godot")
        assert at_s >= since_s + 0.05 - TICK_S

    def test_a_message_is_not_lost_to_a_receive_that_timed_out(self, run_worlds: RunWorlds) -> None:
        async def receiver(world: World) -> int:
            with pytest.raises(WaitTimeout):
                await world.receive("nothing yet", deadline_s=0.02)
            await world.send(WORKER, Message(MessageKind.PUSH, key=4))
            return (await world.receive("the message")).key

        async def sender(world: World) -> None:
            await world.receive("the other's deadline")  # real nodes do not start at the same instant
            await world.send(REMOTE, Message(MessageKind.PUSH, key=5))

        assert run_worlds({WORKER: sender, REMOTE: receiver})[REMOTE] == 5

    def test_wait_ends_at_its_deadline_and_the_future_lives_on(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> int:
            future = world.future()
            with pytest.raises(WaitTimeout, match="the moon"):
                await world.wait(future, "the moon", deadline_s=0.02)
            future.set_result(4)
            return await world.wait(future, "the moon again")

        assert run_worlds({WORKER: program})[WORKER] == 4

    def test_several_may_await_one_future(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> list[int]:
            future = world.future()
            tasks = [world.spawn(world.wait(future, "the value"), f"waiter {n}") for n in range(3)]
            await world.sleep(0.01)
            assert not future.done()
            future.set_result(7)
            assert future.done()
            return [await world.wait(task, "a waiter") for task in tasks] + [await future]

        assert run_worlds({WORKER: program})[WORKER] == [7, 7, 7, 7]

    def test_an_error_set_on_a_future_is_raised_where_it_is_awaited(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> str:
            future = world.future()
            future.set_exception(KeyError("k"))
            with pytest.raises(KeyError):
                await world.wait(future, "an error")
            return "caught"

        assert run_worlds({WORKER: program})[WORKER] == "caught"

    def test_an_unhandled_wait_timeout_ends_the_run(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> None:
            await world.receive("godot", deadline_s=0.05)

        with pytest.raises(WaitTimeout, match="godot"):
            run_worlds({WORKER: program, REMOTE: idle})

    # ---- tasks --------------------------------------------------------------------------------------------------

    def test_spawn_runs_beside_its_caller_and_returns_the_result(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> list[str]:
            order: list[str] = []

            async def child() -> str:
                await world.sleep(0.02)
                order.append("child")
                return "done"

            task = world.spawn(child(), "child")
            order.append("caller")
            order.append(await world.wait(task, "the child"))
            return order

        assert run_worlds({WORKER: program})[WORKER] == ["caller", "child", "done"]

    def test_an_error_in_a_task_that_nobody_awaits_ends_the_node(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> None:
            async def child() -> None:
                await world.sleep(0.01)
                raise ZeroDivisionError("in the child")

            world.spawn(child(), "child")
            await world.sleep(60.0)

        with pytest.raises((RunFailed, ZeroDivisionError), match="in the child"):
            run_worlds({WORKER: program})

    def test_an_error_in_a_task_reaches_the_one_who_awaits_it(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> str:
            async def child() -> None:
                await world.sleep(0.01)
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await world.wait(world.spawn(child(), "child"), "the child")
            return "caught"

        assert run_worlds({WORKER: program})[WORKER] == "caught"

    # ---- computation --------------------------------------------------------------------------------------------

    def test_a_step_takes_the_time_of_its_device(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> tuple[float, int]:
            start_s = world.now()
            value = await world.compute(Work("step", round=1, steps=2), lambda: 42)
            return world.now() - start_s, value

        taken_s, value = run_worlds({WORKER: program})[WORKER]
        assert value == 42
        assert taken_s >= 2 * STEP_TIME_S - TICK_S
        (event,) = [event for event in run_worlds.events(WORKER) if event["kind"] == "compute"]
        assert (event["work"], event["round"], event["modelled_s"]) == ("step", 1, 2 * STEP_TIME_S)
        assert event["t"] - event["t0"] >= 2 * STEP_TIME_S - TICK_S

    def test_messages_arrive_while_a_step_computes(self, run_worlds: RunWorlds) -> None:
        async def worker(world: World) -> tuple[float, float]:
            await world.receive("the other's beginning")
            await world.send(REMOTE, Message(MessageKind.PULL))
            arrival = world.spawn(world.receive("the other's"), "receiver")
            await world.compute(Work("step", steps=40), lambda: None)
            end_s = world.now()
            return (await world.wait(arrival, "the arrival")).meta["sent"], end_s

        async def other(world: World) -> None:
            await world.send(WORKER, Message(MessageKind.PUSH))
            await world.receive("the beginning of the step")
            await world.send(WORKER, Message(MessageKind.VALUE, meta={"sent": world.now()}))

        sent_s, end_s = run_worlds({WORKER: worker, REMOTE: other})[WORKER]
        assert sent_s < end_s
        event = [event for event in run_worlds.events(WORKER) if event["kind"] == "transfer"][-1]
        assert event["t"] < end_s, "the message lay in the socket until the step was over"

    def test_a_sum_that_comes_during_a_step_is_made_before_the_next_one(self, run_worlds: RunWorlds) -> None:
        """The device does one piece of work at a time, in the order of the calls."""

        async def program(world: World) -> list[str]:
            done: list[str] = []
            first = world.spawn(world.compute(Work("step"), lambda: done.append("step")), "the first step")
            summing = world.spawn(world.compute(Work("sum", size_bytes=8), lambda: done.append("sum")), "a sum")
            await world.wait(first, "the first step")
            for _ in range(2):
                await world.compute(Work("step"), lambda: done.append("step"))
            await world.wait(summing, "the sum")
            return done

        assert run_worlds({WORKER: program})[WORKER] == ["step", "sum", "step", "step"]

    @for_each("size_bytes", [8, 40_000_000])
    def test_other_work_returns_its_value(self, run_worlds: RunWorlds, size_bytes: int) -> None:
        async def program(world: World) -> float:
            tensor = torch.ones(1000)
            total: float = await world.compute(Work("sum", size_bytes=size_bytes), lambda: float(tensor.sum()))
            return total

        assert run_worlds({NEIGHBOUR: program})[NEIGHBOUR] == 1000.0

    @for_each("kind", ["step", "sum"])
    def test_an_error_in_computation_reaches_the_caller(self, run_worlds: RunWorlds, kind: str) -> None:
        async def program(world: World) -> str:
            with pytest.raises(ZeroDivisionError):
                await world.compute(Work(kind), lambda: 1 // 0)
            return "caught"

        assert run_worlds({WORKER: program})[WORKER] == "caught"

    def test_aside_runs_the_function_and_gives_its_value(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> float:
            future = world.aside(lambda: 0.97)
            return await world.wait(future, "the evaluation")

        assert run_worlds({WORKER: program})[WORKER] == 0.97

    # ---- records ------------------------------------------------------------------------------------------------

    def test_a_record_has_its_kind_time_and_fields(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> float:
            world.record("round", t0=0.0, round=1, loss=2.5, samples=32)
            return world.now()

        now_s = run_worlds({WORKER: program})[WORKER]
        (event,) = [event for event in run_worlds.events(WORKER) if event["kind"] == "round"]
        assert (event["round"], event["loss"], event["samples"]) == (1, 2.5, 32)
        assert event["t"] <= now_s + TICK_S

    @for_each(("source", "tier"), [(NEIGHBOUR, "lan"), (REMOTE, "wan")])
    def test_the_receiver_records_each_transfer(self, run_worlds: RunWorlds, source: str, tier: str) -> None:
        message = Message(MessageKind.PUSH, key=2, round=5, parts=(torch.ones(1000), torch.ones(7)))
        (got,) = run_worlds({source: sending(WORKER, message), WORKER: receiving(1)})[WORKER]
        (event,) = [event for event in run_worlds.events(WORKER) if event["kind"] == "transfer"]
        assert (event["source"], event["target"], event["tier"]) == (source, WORKER, tier)
        assert (event["message"], event["key"], event["round"]) == ("push", 2, 5)
        assert event["payload_bytes"] == 4028
        assert event["header_bytes"] == wire_bytes(got)[1]
        assert event["t"] >= event["t0"] == pytest.approx(got.sent_at_s, abs=1e-6)

    def test_a_wait_that_took_time_is_recorded(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> None:
            future = world.future()

            async def later() -> None:
                await world.sleep(0.05)
                future.set_result(None)

            world.spawn(later(), "later")
            await world.wait(future, "the value of key 3")

        run_worlds({WORKER: program})
        (event,) = [event for event in run_worlds.events(WORKER) if event["kind"] == "wait"]
        assert event["waiting_for"] == "the value of key 3"
        assert event["t"] - event["t0"] >= 0.05 - TICK_S
