"""The part of the contract of ``testbed.world.World`` about messages: whole, in order, by priority, best effort."""

from __future__ import annotations

import pytest
import torch

from testbed.messages import Message, MessageKind
from testbed.world import World
from tests.contract.programs import Program, RunWorlds, receiving, sending
from tests.contract.tiny import NEIGHBOUR, REMOTE, TICK_S, WORKER
from tests.for_each import for_each


class MessageContract:
    """A part of ``WorldContract``."""

    def test_a_message_arrives_whole(self, run_worlds: RunWorlds) -> None:
        parts = (
            torch.arange(12, dtype=torch.float32).reshape(3, 4),
            torch.tensor(7, dtype=torch.int64),
            torch.empty(0, 5),
            torch.arange(3, dtype=torch.float32).to(torch.bfloat16),
        )
        sent = Message(MessageKind.PUSH, key=3, round=9, meta={"version": 2, "note": "é"}, parts=parts, priority=-4)
        (got,) = run_worlds({WORKER: sending(REMOTE, sent), REMOTE: receiving(1)})[REMOTE]
        assert (got.kind, got.key, got.round, got.meta, got.priority) == (MessageKind.PUSH, 3, 9, sent.meta, -4)
        assert got.sender == WORKER
        assert [(part.dtype, part.shape) for part in got.parts] == [(part.dtype, part.shape) for part in parts]
        assert all(torch.equal(a, b) for a, b in zip(got.parts, parts, strict=True))

    def test_the_send_time_is_the_senders_clock(self, run_worlds: RunWorlds) -> None:
        async def sender(world: World) -> float:
            await world.sleep(0.02)
            at_s = world.now()
            await world.send(REMOTE, Message(MessageKind.PUSH))
            return at_s

        async def receiver(world: World) -> tuple[float, float]:
            message = await world.receive("it")
            return message.sent_at_s, world.now()

        results = run_worlds({WORKER: sender, REMOTE: receiver})
        stamped_s, received_s = results[REMOTE]
        assert results[WORKER] <= stamped_s <= received_s

    def test_a_message_may_be_sent_to_several(self, run_worlds: RunWorlds) -> None:
        """What the first of them has got is not changed by what is said to the second."""

        async def sender(world: World) -> None:
            message = Message(MessageKind.PUSH, key=4, meta={"note": "to all"}, parts=(torch.arange(3.0),))
            await world.send(REMOTE, message)
            await world.sleep(0.05)
            await world.send(NEIGHBOUR, message)

        got = run_worlds({WORKER: sender, REMOTE: receiving(1), NEIGHBOUR: receiving(1)})
        (first,), (second,) = got[REMOTE], got[NEIGHBOUR]
        assert second.sent_at_s - first.sent_at_s >= 0.05 - TICK_S
        for each in (first, second):
            assert (each.key, each.sender, each.meta) == (4, WORKER, {"note": "to all"})
            assert each.parts[0].tolist() == [0.0, 1.0, 2.0]

    def test_messages_of_one_priority_keep_their_order(self, run_worlds: RunWorlds) -> None:
        messages = [Message(MessageKind.PUSH, key=index, parts=(torch.ones(index * 50),)) for index in range(100)]
        got = run_worlds({WORKER: sending(REMOTE, *messages), REMOTE: receiving(100)})[REMOTE]
        assert [message.key for message in got] == list(range(100))

    def test_what_is_sent_aside_arrives_whole_in_order_and_unrecorded(self, run_worlds: RunWorlds) -> None:
        async def program(world: World) -> None:
            for key in range(20):
                message = Message(MessageKind.SNAPSHOT, key, 3, {"note": key}, (torch.full((5_000,), float(key)),))
                await world.send_aside(REMOTE, message)

        got = run_worlds({WORKER: program, REMOTE: receiving(20)})[REMOTE]
        assert [(each.key, each.round, each.sender, each.meta) for each in got] == [
            (key, 3, WORKER, {"note": key}) for key in range(20)
        ]
        assert all(each.parts[0].tolist() == [float(each.key)] * 5_000 for each in got)
        assert not [event for event in run_worlds.events(REMOTE) if event["kind"] == "transfer"]

    def test_messages_of_several_senders_all_arrive(self, run_worlds: RunWorlds) -> None:
        messages = [Message(MessageKind.PUSH, key=index) for index in range(20)]
        mine, theirs = (
            sending(REMOTE, *messages),
            sending(REMOTE, *[Message(MessageKind.PULL, key=k) for k in range(20)]),
        )
        got = run_worlds({WORKER: mine, NEIGHBOUR: theirs, REMOTE: receiving(40)})[REMOTE]
        for sender in (WORKER, NEIGHBOUR):
            assert [message.key for message in got if message.sender == sender] == list(range(20))

    def test_two_nodes_may_send_much_to_each_other_before_they_receive(self, run_worlds: RunWorlds) -> None:
        def program(peer: str) -> Program:
            async def both(world: World) -> int:
                for key in range(12):
                    await world.send(peer, Message(MessageKind.PUSH, key=key, parts=(torch.ones(125_000),)))
                return sum([(await world.receive("the other's")).payload_bytes for _ in range(12)])

            return both

        results = run_worlds({WORKER: program(NEIGHBOUR), NEIGHBOUR: program(WORKER)})
        assert results == {WORKER: 6_000_000, NEIGHBOUR: 6_000_000}

    def test_an_urgent_message_overtakes_queued_bulk(self, run_worlds: RunWorlds) -> None:
        async def sender(world: World) -> None:
            bulk = [Message(MessageKind.PUSH, key=key, parts=(torch.ones(1_000_000),)) for key in range(10)]
            tasks = [world.spawn(world.send(REMOTE, message), f"bulk {message.key}") for message in bulk]
            await world.sleep(0.001)
            await world.send(REMOTE, Message(MessageKind.PULL, key=99, priority=10))
            for task in tasks:
                await world.wait(task, "the bulk to be accepted")

        got = run_worlds({WORKER: sender, REMOTE: receiving(11)})[REMOTE]
        keys = [message.key for message in got]
        assert keys.index(99) < 8, keys
        assert [key for key in keys if key != 99] == list(range(10))

    def test_a_message_that_came_early_waits_for_its_receiver(self, run_worlds: RunWorlds) -> None:
        async def late(world: World) -> str:
            await world.sleep(0.1)
            return (await world.receive("what came long ago")).sender

        assert run_worlds({WORKER: sending(REMOTE, Message(MessageKind.PUSH)), REMOTE: late})[REMOTE] == WORKER

    def test_what_was_sent_last_arrives_although_its_sender_ended(self, run_worlds: RunWorlds) -> None:
        last = Message(MessageKind.DONE, parts=(torch.ones(500_000),))
        (got,) = run_worlds({WORKER: sending(REMOTE, last), REMOTE: receiving(1)})[REMOTE]
        assert got.payload_bytes == 2_000_000

    # ---- best effort --------------------------------------------------------------------------------------------

    @for_each("source", [NEIGHBOUR, REMOTE])
    def test_best_effort_messages_arrive_once_and_whole_where_nothing_is_lost(
        self, run_worlds: RunWorlds, source: str
    ) -> None:
        def block(number: int) -> Message:
            parts = (torch.full((1024,), float(number)), torch.arange(number, dtype=torch.uint8))
            return Message(MessageKind.BLOCK, key=number, round=7, meta={"of": 60}, parts=parts, channel=1 + number % 3)

        got = run_worlds({source: sending(WORKER, *map(block, range(60))), WORKER: receiving(60)})[WORKER]
        assert sorted(message.key for message in got) == list(range(60))
        for message in got:
            expected = block(message.key)
            assert (message.sender, message.round, message.channel) == (source, 7, expected.channel)
            assert message.meta == {"of": 60}
            assert all(torch.equal(a, b) for a, b in zip(message.parts, expected.parts, strict=True))

    def test_best_effort_goes_after_what_is_reliable(self, run_worlds: RunWorlds) -> None:
        bulk = [Message(MessageKind.PUSH, key=key, parts=(torch.ones(100_000),)) for key in range(4)]
        blocks = [
            Message(MessageKind.BLOCK, key=100 + n, parts=(torch.ones(1024),), channel=3 - n % 3) for n in range(30)
        ]
        got = run_worlds({WORKER: sending(REMOTE, *blocks, *bulk), REMOTE: receiving(34)})[REMOTE]
        keys = [message.key for message in got]
        assert [key for key in keys if key < 100] == [0, 1, 2, 3]
        assert keys.index(3) < 10, f"blocks did not wait for the bulk: {keys}"
        channels = [message.channel for message in got if message.channel][3:]  # a few may be on their way already
        assert channels == sorted(channels), "the lower channel goes first"

    def test_what_is_sent_after_a_drain_follows_all_blocks(self, run_worlds: RunWorlds) -> None:
        async def sender(world: World) -> None:
            await world.drain(REMOTE)  # nothing has been sent: there is nothing to wait for
            for number in range(30):
                await world.send(REMOTE, Message(MessageKind.BLOCK, key=number, parts=(torch.ones(1024),), channel=1))
            await world.drain(REMOTE)
            await world.send(REMOTE, Message(MessageKind.PUSH, key=30, parts=(torch.ones(10),)))

        got = run_worlds({WORKER: sender, REMOTE: receiving(31)})[REMOTE]
        assert [message.key for message in got] == list(range(31))

    @pytest.mark.wallclock
    def test_best_effort_never_holds_its_sender_up(self, run_worlds: RunWorlds) -> None:
        async def sender(world: World) -> float:
            start_s = world.now()
            for number in range(100):
                await world.send(REMOTE, Message(MessageKind.BLOCK, key=number, parts=(torch.ones(10_000),), channel=1))
            taken_s = world.now() - start_s
            await world.send(REMOTE, Message(MessageKind.DONE))
            return taken_s

        async def receiver(world: World) -> None:
            while (await world.receive("anything")).kind is not MessageKind.DONE:
                pass

        taken_s = run_worlds({WORKER: sender, REMOTE: receiver})[WORKER]
        assert taken_s < 0.25, "4 MB take 0.33 s on this link"
