"""Best-effort messages over UDP: what the wire may do to datagrams, and what sockets really send."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import socket

import pytest
import torch

from testbed.best_effort import DATAGRAM_BYTES, BestEffortQueue, best_effort_overhead_bytes, datagrams, pace_bps
from testbed.messages import Message, MessageKind
from testbed.realtime import udp
from testbed.realtime.auth import Keys
from testbed.realtime.frames import Arrival
from testbed.realtime.udp_wire import MAX_PARTIAL, MEMORY, Packer, Unpacker, body_of
from testbed.world import World
from tests.contract.tiny import NEIGHBOUR, REMOTE, WAN_RATE_BPS, WORKER, tiny_plan
from tests.for_each import for_each
from tests.realtime.in_process import InProcess

KEYS = Keys(b"a" * 32, b"b" * 32)
THEIRS = Keys(b"b" * 32, b"a" * 32)


def block(number: int = 0, sender: str = WORKER, elements: int = 1024) -> Message:
    parts = (torch.full((elements,), float(number)),)
    return Message(
        MessageKind.BLOCK, number, 3, {"block": number, "of": 9}, parts, channel=2, sender=sender, sent_at_s=1.5
    )


def pair(mac: str = "aes-gmac") -> tuple[Packer, Unpacker]:
    unpacker = Unpacker(mac)
    unpacker.expect(WORKER, THEIRS)
    return Packer(KEYS, mac), unpacker


def wire(packer: Packer, message: Message) -> list[bytes]:
    return list(packer.datagrams(body_of(message), message.channel))


def taken(unpacker: Unpacker, data: list[bytes]) -> list[Arrival]:
    arrivals = [unpacker.take(memoryview(each)) for each in data]
    return [arrival for arrival in arrivals if arrival is not None]


@for_each("mac", ["aes-gmac", "none"])
@for_each("elements", [0, 1, 300, 1024, 16_384])
def test_a_message_comes_whole_in_datagrams_that_fit_a_frame(mac: str, elements: int) -> None:
    packer, unpacker = pair(mac)
    message = block(5, elements=elements)
    data = wire(packer, message)
    assert max(map(len, data)) <= DATAGRAM_BYTES
    assert (len(data), sum(len(each) + 42 for each in data)) == datagrams(message)
    (arrival,) = taken(unpacker, data)
    assert arrival.overhead_bytes == best_effort_overhead_bytes(message) == sum(map(len, data)) - 4 * elements
    assert torch.equal(arrival.message.parts[0], message.parts[0])
    assert arrival.message.meta == message.meta


def test_datagrams_of_many_messages_in_any_order_twice_come_out_once() -> None:
    packer, unpacker = pair()
    data = [each for number in range(40) for each in wire(packer, block(number))]
    data += data
    random.Random(1).shuffle(data)
    arrivals = taken(unpacker, data)
    assert sorted(arrival.message.key for arrival in arrivals) == list(range(40))
    assert unpacker.refused == {"repeated or too old": len(data) // 2}
    assert not taken(unpacker, data), "replayed"


def test_a_message_with_a_piece_missing_never_comes() -> None:
    packer, unpacker = pair()
    assert not taken(unpacker, wire(packer, block(1))[:-1])
    assert len(taken(unpacker, wire(packer, block(2)))) == 1


def test_every_altered_byte_is_noticed() -> None:
    packer, unpacker = pair()
    (data,) = wire(packer, block(1, elements=1))
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 0x10
        assert not taken(unpacker, [bytes(altered)])
    assert sum(unpacker.refused.values()) == len(data)
    assert len(taken(unpacker, [data])) == 1


def test_datagrams_of_strangers_fragments_and_false_names_are_refused() -> None:
    packer, unpacker = pair()
    stranger = Packer(Keys(b"c" * 32, b"d" * 32), "aes-gmac")
    assert not taken(unpacker, wire(stranger, block()))
    assert not taken(unpacker, [b"", b"x" * 10, wire(packer, block())[0][:-1]])
    assert not taken(unpacker, wire(packer, block(sender=REMOTE)))
    assert set(unpacker.refused) == {"of an unknown connection", "too short", "with a wrong code", "in another's name"}


def test_what_is_older_than_the_memory_is_refused() -> None:
    packer, unpacker = pair()
    old = wire(packer, block(1))
    packer._sequence += MEMORY
    assert len(taken(unpacker, wire(packer, block(2)))) == 1
    assert not taken(unpacker, old)


def test_memory_for_incomplete_messages_is_bounded() -> None:
    packer, unpacker = pair()
    for number in range(5000):
        taken(unpacker, wire(packer, block(number))[:1])
    (peer,) = unpacker._peers.values()
    assert len(peer.partial) <= 4096


def test_a_message_that_is_late_comes_though_no_more_incomplete_ones_could_be_kept() -> None:
    packer, unpacker = pair()
    late = wire(packer, block(1, elements=1))
    for number in range(MAX_PARTIAL):
        taken(unpacker, wire(packer, block(number))[:1])
    assert len(taken(unpacker, late)) == 1


# ---- the queue ------------------------------------------------------------------------------------------------------


def test_the_lower_channel_goes_first_and_what_is_two_rounds_old_stays() -> None:
    queue: BestEffortQueue[str] = BestEffortQueue()
    for channel, key, round_ in ((2, 1, 0), (1, 1, 1), (2, 1, 2), (3, 2, 0), (1, 1, 2)):
        message = Message(MessageKind.BLOCK, key, round_, channel=channel)
        queue.post(f"{channel}/{key}/{round_}", message, 10)
    out = [queue.pop() for _ in range(5)]
    assert [item and item[0] for item in out] == ["1/1/1", "1/1/2", "2/1/2", "3/2/0", None]
    assert queue.dropped == {"too old": 1} and queue.queued_bytes == 0


def test_a_full_queue_drops_the_oldest_of_the_highest_channel() -> None:
    queue: BestEffortQueue[int] = BestEffortQueue(limit_bytes=30)
    for number, channel in enumerate((1, 2, 2, 1)):
        queue.post(number, Message(MessageKind.BLOCK, channel=channel), 10)
    assert [item and item[0] for item in (queue.pop(), queue.pop(), queue.pop())] == [0, 3, 2]


def test_the_pace_is_that_of_the_slowest_link_on_the_way() -> None:
    emulated = dataclasses.replace(tiny_plan([WORKER, NEIGHBOUR, REMOTE]), back_end="emulate")
    assert pace_bps(emulated, WORKER, REMOTE) == pytest.approx(0.97 * WAN_RATE_BPS)
    assert pace_bps(emulated, WORKER, NEIGHBOUR) == pytest.approx(0.97e9)
    assert pace_bps(dataclasses.replace(emulated, back_end="local"), WORKER, REMOTE) == pytest.approx(0.97e9)


# ---- sockets --------------------------------------------------------------------------------------------------------


@pytest.mark.wallclock
def test_datagrams_are_not_faster_than_the_pace() -> None:
    """From the first block's send to the last one's arrival: a stall of either end can only lengthen that."""
    began_s: list[float] = []
    arrived_s: list[float] = []

    async def sender(world: World) -> None:
        await world.send(REMOTE, Message(MessageKind.PUSH))
        await world.sleep(0.1)
        began_s.append(world.now())
        for number in range(150):
            message = block(number)
            message.channel = 1 + number % 3
            await world.send(REMOTE, message)
        await world.sleep(0.5)

    async def receiver(world: World) -> None:
        for _ in range(151):
            message = await world.receive("a block")
            if message.channel:
                arrived_s.append(world.now())

    plan = dataclasses.replace(tiny_plan([WORKER, REMOTE]), back_end="emulate")
    InProcess()({WORKER: sender, REMOTE: receiver}, plan)
    taken_s = arrived_s[-1] - began_s[0]
    sent_bits = 150 * datagrams(block())[1] * 8
    assert sent_bits / taken_s < 1.3 * WAN_RATE_BPS  # a burst of 10 ms is allowed: 0.05 s at the pace


def test_a_drain_ends_when_the_peer_is_lost() -> None:
    """Its connection may never have been open, and nothing else would wake who waits."""

    async def draining() -> int:
        sender = udp.Sender("127.0.0.1", ("127.0.0.1", 9), 3, 1e7, "none", lambda error: None)
        message = block()
        message.channel = 1
        sender.post(message)
        waits = asyncio.ensure_future(sender.drain())
        await asyncio.sleep(0)
        assert not waits.done()
        sender.lost()
        await asyncio.wait_for(waits, 240)
        sender.close()
        return len(sender.queue)

    assert asyncio.run(draining()) == 0


def test_what_is_never_sent_as_too_much_is_queued_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "BestEffortQueue", lambda: BestEffortQueue(limit_bytes=10_000))

    async def problems() -> list[str]:
        node = udp.Udp(tiny_plan([WORKER, REMOTE]), WORKER, ("127.0.0.1", 0), lambda got: None, lambda error: None)
        for number in range(5):
            message = block(number)
            message.channel = 1
            node.send(REMOTE, ("127.0.0.1", 9), message)
        found = list(node.problems())
        node.close()
        return found

    (problem,) = asyncio.run(problems())
    assert problem.startswith("3 best-effort messages were never sent")


def test_a_port_that_is_taken_is_named() -> None:
    from testbed.errors import RunFailed
    from testbed.realtime.udp import _bound

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        with pytest.raises(RunFailed, match="cannot receive datagrams on 127"):
            _bound(other.getsockname())


def test_a_sending_socket_on_the_port_does_not_take_its_datagrams() -> None:
    """The kernel may give a sender the number of a port that a node's TCP listener has, and its receiver needs."""
    elsewhere, other = udp._bound(("127.0.0.1", 0)), udp._bound(("127.0.0.1", 0))
    sender = udp._marked("127.0.0.1", elsewhere.getsockname(), 0)
    receiver = udp._bound(sender.getsockname())
    for sock in (elsewhere, receiver):
        sock.settimeout(5)
    other.sendto(b"for the receiver", receiver.getsockname())
    sender.send(b"from the sender")
    assert elsewhere.recv(100) == b"from the sender"
    assert receiver.recv(100) == b"for the receiver"
    for sock in (elsewhere, other, sender, receiver):
        sock.close()


def test_a_flood_of_datagrams_is_neither_delivered_nor_answered() -> None:
    """Whoever sends them: altered, recorded and sent again, of another connection, or of no connection at all."""
    noise, packer = random.Random(3), Packer(KEYS, "aes-gmac")
    genuine = [data for number in range(20) for data in wire(packer, block(number, elements=1024))]
    foreign = wire(Packer(Keys(b"x" * 32, b"y" * 32), "aes-gmac"), block())

    async def besieged() -> tuple[list[Arrival], list[str], int]:
        arrivals: list[Arrival] = []
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(type=socket.SOCK_DGRAM) as stranger:
            place = listener.getsockname()
            node = udp.Udp(
                tiny_plan([REMOTE, WORKER]), REMOTE, place, arrivals.append, lambda error: pytest.fail(str(error))
            )
            node.expect(WORKER, THEIRS)
            stranger.bind(("127.0.0.1", 0))
            for at in range(2000):
                data = bytearray(noise.choice((genuine[at % len(genuine)], *foreign, noise.randbytes(at % 1400))))
                if data and noise.random() < 0.5:
                    data[noise.randrange(len(data))] ^= 1 << noise.randrange(8)
                stranger.sendto(data, place)
                if at % 20 == 0:
                    await asyncio.sleep(0)
            for data in genuine:  # the first time, for those that only came altered
                stranger.sendto(data, place)
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            stranger.setblocking(False)
            answered = 0
            with contextlib.suppress(BlockingIOError):
                answered = len(stranger.recv(65536))
            told = list(node.problems())
            node.close()
        return arrivals, told, answered

    arrivals, told, answered = asyncio.run(besieged())
    assert sorted(arrival.message.key for arrival in arrivals) == list(range(20))
    assert answered == 0
    assert 0 < len(told) <= 6
