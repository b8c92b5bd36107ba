"""Nodes that meet over real sockets while others disturb them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch

from testbed.costs import Cost
from testbed.errors import CapabilityError, RunFailed
from testbed.messages import Message, MessageKind, encode_header
from testbed.plan.model import monitor_of
from testbed.realtime import connecting
from testbed.realtime.auth import Credentials, HandshakeResult, Hello, new_credentials
from testbed.realtime.frame_codes import frame_code
from testbed.realtime.frames import PIECE_BYTES
from testbed.realtime.heartbeat import PeerLost
from testbed.realtime.network import BEAT, DATA
from testbed.realtime.setup import ConnectionLimits
from testbed.realtime.world import RealWorld
from testbed.world import Work
from tests.contract.programs import idle, receiving, sending
from tests.contract.tiny import NEIGHBOUR, REMOTE, WORKER, tiny_plan
from tests.for_each import for_each
from tests.realtime.in_process import InProcess, MemoryLog

ONE_MEGABYTE = 250_000  # float32


def warnings(worlds: InProcess, node: str) -> list[str]:
    return [event["message"] for event in worlds.events(node) if event["kind"] == "warning"]


async def raw_call(address: tuple[str, int], data: bytes) -> None:
    """Be a stranger: connect, say ``data``, listen until thrown out."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(-1), 5)
    writer.close()


def test_hostile_connections_do_not_disturb_a_session() -> None:
    worlds = InProcess()
    noise = random.Random(1)

    async def attacked(world: RealWorld) -> float:
        shouts = [b"GET / HTTP/1.1\r\n\r\n", b"", *(noise.randbytes(noise.randrange(3000)) for _ in range(300))]
        calls = [raw_call(worlds.addresses[REMOTE], shout) for shout in shouts]
        storm = asyncio.gather(*calls, return_exceptions=True)
        total = 0.0
        for _ in range(50):
            message = await world.receive("an honest message")
            total += float(message.parts[0].sum())
        await storm
        return total

    async def honest(world: RealWorld) -> None:
        for _ in range(50):
            await world.send(REMOTE, Message(MessageKind.PUSH, parts=(torch.ones(1000),)))
            await world.sleep(0.005)

    assert worlds({REMOTE: attacked, WORKER: honest})[REMOTE] == 50_000
    told = warnings(worlds, REMOTE)
    assert any("not a handshake of this project" in text for text in told)
    assert len(told) < 60, "a flood must not fill the log"


def test_silent_strangers_hold_a_limited_number_of_places() -> None:
    worlds = InProcess(ConnectionLimits(handshakes=3))

    async def besieged(world: RealWorld) -> int:
        sockets = [socket.create_connection(worlds.addresses[REMOTE]) for _ in range(10)]
        await world.sleep(0.1)
        thrown_out = 0
        for sock in sockets:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                thrown_out += sock.recv(1) == b""
            sock.close()
        return thrown_out

    assert worlds({REMOTE: besieged})[REMOTE] == 7
    assert any("too many at a time" in text for text in warnings(worlds, REMOTE))


def test_a_node_gets_the_place_of_a_stranger_that_has_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers hold all places before the node connects; its handshake may then take longer than theirs may."""
    monkeypatch.setattr(connecting, "SECURE_PLACE_S", 0.2)
    worlds = InProcess(ConnectionLimits(handshakes=3))

    async def besieged(world: RealWorld) -> MessageKind:
        sockets = [socket.create_connection(worlds.addresses[REMOTE]) for _ in range(3)]
        message = await world.receive("a message", deadline_s=240.0)
        for sock in sockets:
            sock.close()
        return message.kind

    async def late(world: RealWorld) -> None:
        await world.sleep(0.1)
        await world.send(REMOTE, Message(MessageKind.PUSH))

    assert worlds({REMOTE: besieged, WORKER: late})[REMOTE] == MessageKind.PUSH
    refused = [text for text in warnings(worlds, REMOTE) if "no complete handshake in time" in text]
    assert refused


def test_a_node_with_the_wrong_secret_fails_and_says_so() -> None:
    worlds = InProcess()
    worlds.credentials[WORKER] = Credentials("another run", b"x" * 32)

    async def waiting(world: RealWorld) -> None:
        await world.receive("nothing", deadline_s=3600.0)

    with pytest.raises(RunFailed, match=rf"{WORKER}: {REMOTE} \(127\.0\.0\.1:\d+\): wrong secret or wrong run"):
        worlds({REMOTE: waiting, WORKER: sending(REMOTE, Message(MessageKind.PUSH))})
    assert any(
        f"wrong secret or wrong run: the initiator claims to be '{WORKER}'" in text for text in warnings(worlds, REMOTE)
    )


def test_a_second_node_of_the_same_name_is_refused() -> None:
    worlds = InProcess()

    async def twice(world: RealWorld) -> str:
        await world.send(REMOTE, Message(MessageKind.PUSH))
        await world.sleep(0.1)
        with pytest.raises(RunFailed) as caught:
            await world.network._connector.connect(REMOTE, DATA)
        await world.send(REMOTE, Message(MessageKind.DONE))
        return str(caught.value)

    assert "duplicate registration" in worlds({WORKER: twice, REMOTE: receiving(2)})[WORKER]


def killed_after_registering(is_over: asyncio.Event) -> Callable[[RealWorld], Coroutine[Any, Any, None]]:
    """Return a role that registers. As of a killed process, its end is not noticed before ``is_over``."""

    async def role(world: RealWorld) -> None:
        world.network._lose = lambda *_: None  # type: ignore[method-assign]
        await world.send("a/scheduler", Message(MessageKind.REGISTER))
        await is_over.wait()

    return role


def test_a_node_that_starts_again_takes_the_place_of_a_process_whose_end_was_lost_on_the_way() -> None:
    """Over a link that is down; and its further connections, or a second node of its name, lose nothing more."""
    is_over = asyncio.Event()

    async def scheduler(world: RealWorld) -> tuple[Any, ...]:
        def hello(purpose: str, process: bytes) -> Hello:
            return Hello("", WORKER, world.node, purpose, b"", process)

        await world.receive("the registration of the old one")
        network, old_process = world.network, world.network._processes[WORKER]
        second = network.authorize(hello(DATA, old_process))
        answers = []
        for purpose in (DATA, BEAT):
            answers.append(network.authorize(hello(purpose, b"new")))
            network._left.discard(WORKER)  # as when it is connected
        lost = await world.receive("its loss")
        network._left.add(WORKER)
        is_over.set()
        return second, answers, lost.kind, lost.sender, len(world._inbox)

    plan = tiny_plan(["a/scheduler", WORKER])
    plan = dataclasses.replace(plan, recovery=dataclasses.replace(plan.recovery, on_failure="continue"))
    accepted = [HandshakeResult.ACCEPTED] * 2
    found = InProcess()({"a/scheduler": scheduler, WORKER: killed_after_registering(is_over)}, plan)["a/scheduler"]
    assert found == (HandshakeResult.DUPLICATE, accepted, MessageKind.LOST, WORKER, 0)


def test_a_node_that_starts_again_as_the_run_ends_is_turned_away() -> None:
    """It would wait to be let in, and the scheduler, which leaves after all others, for its end."""
    is_over = asyncio.Event()

    async def scheduler(world: RealWorld) -> list[HandshakeResult]:
        await world.receive("the registration of the old one")
        network, answers = world.network, []
        network._role_has_ended = True
        for process in (network._processes[WORKER], b"new"):
            answers.append(network.authorize(Hello("", WORKER, world.node, DATA, b"", process)))
        is_over.set()
        return answers

    plan = tiny_plan(["a/scheduler", WORKER])
    plan = dataclasses.replace(plan, recovery=dataclasses.replace(plan.recovery, on_failure="continue"))
    found = InProcess()({"a/scheduler": scheduler, WORKER: killed_after_registering(is_over)}, plan)["a/scheduler"]
    assert found == [HandshakeResult.DUPLICATE, HandshakeResult.TOO_LATE]


def test_a_node_that_registers_as_the_run_ends_is_turned_away() -> None:
    async def scheduler(world: RealWorld) -> None:
        await world.receive("a message")

    async def late(world: RealWorld) -> None:
        await world.send("a/scheduler", Message(MessageKind.PUSH))
        await world.sleep(0.1)
        await world.send("a/scheduler", Message(MessageKind.REGISTER))
        await world.receive("the scheduler's answer", deadline_s=240.0)

    with pytest.raises(PeerLost):
        InProcess()({"a/scheduler": scheduler, WORKER: late})


def test_a_peer_that_was_lost_and_is_back_while_it_is_called_gets_what_follows() -> None:
    """By one connection: another one would be refused, and its queue never be sent."""
    worlds = InProcess()

    async def calling(world: RealWorld) -> None:
        network, gate = world.network, asyncio.Event()
        connect = network._connector.connect

        async def held_up(*args: Any) -> Any:
            await gate.wait()
            return await connect(*args)

        network._connector.connect = held_up  # type: ignore[method-assign]
        await world.send(REMOTE, Message(MessageKind.PUSH, 1))
        await world.sleep(0.05)
        network._queues.pop((REMOTE, DATA)).clear()  # as for a peer that is lost, and has come back since
        await world.send(REMOTE, Message(MessageKind.PUSH, 2))
        await world.sleep(0.05)
        gate.set()
        await world.receive("an answer", deadline_s=240.0)

    async def answering(world: RealWorld) -> int:
        message = await world.receive("a message", deadline_s=240.0)
        await world.send(WORKER, Message(MessageKind.PUSH))
        return message.key

    assert worlds({WORKER: calling, REMOTE: answering})[REMOTE] == 2


def test_a_peer_that_is_never_there_is_named() -> None:
    worlds = InProcess()
    plan = tiny_plan([REMOTE, WORKER])
    plan = dataclasses.replace(plan, timeouts=dataclasses.replace(plan.timeouts, rendezvous_s=0.3))

    async def alone(world: RealWorld) -> None:
        del world
        await asyncio.sleep(30)

    async def shut(world: RealWorld) -> None:
        world.network._acceptor.listener.close()
        await asyncio.sleep(30)

    with pytest.raises(RunFailed, match=rf"could not reach {REMOTE}|lost {WORKER}: did not connect within 0\.3 s"):
        worlds({REMOTE: shut, WORKER: alone}, plan)


@for_each("damage", ["garbage", "flipped", "in another's name"])
def test_a_damaged_frame_closes_the_connection_and_ends_the_run(damage: str) -> None:
    async def liar(world: RealWorld) -> None:
        await world.send(REMOTE, Message(MessageKind.PUSH))
        await world.sleep(0.1)
        connection = world.network._outgoing[REMOTE, DATA]
        if damage == "garbage":
            os.write(connection.fileno(), b"x" * 100)
        elif damage == "flipped":
            connection._code = frame_code("aes-gmac", bytes(32))
            await world.send(REMOTE, Message(MessageKind.PUSH))
        else:
            connection.queue.post(encode_header(Message(MessageKind.PUSH, sender=NEIGHBOUR)))
            connection.wake()
        await world.sleep(30)

    text = {
        "garbage": "not a frame",
        "flipped": "wrong authentication code",
        "in another's name": "in the name of",
    }[damage]
    with pytest.raises(PeerLost, match=f"{REMOTE} lost {WORKER}: .*{text}"):
        InProcess()({REMOTE: receiving(2), WORKER: liar})


def test_a_node_whose_log_cannot_be_written_fails_at_once_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(self: MemoryLog) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "events/a.0000.jsonl.gz")

    async def waiting(world: RealWorld) -> None:
        await world.receive("nothing", deadline_s=240.0)

    monkeypatch.setattr(MemoryLog, "flush", flush)
    with pytest.raises(OSError, match="No space left on device"):
        InProcess()({REMOTE: waiting, WORKER: waiting})


def test_an_error_while_a_node_leaves_is_its_own() -> None:
    async def finish() -> None:
        raise ValueError("no more")

    async def broken(world: RealWorld) -> None:
        world.network.finish = finish  # type: ignore[method-assign]

    with pytest.raises(ValueError, match="no more"):
        InProcess()({REMOTE: idle, WORKER: broken})


def test_a_peer_that_vanishes_is_noticed_at_once() -> None:
    worlds = InProcess()

    async def vanish(world: RealWorld) -> None:
        await world.send(REMOTE, Message(MessageKind.PUSH))
        await world.sleep(0.1)
        for connection in world.network._connections():
            connection.close()  # as the kernel does for a process that was killed
        await world.sleep(30)

    with pytest.raises(PeerLost, match=f"{REMOTE} lost {WORKER}: closed the connection unexpectedly"):
        worlds({REMOTE: receiving(2), WORKER: vanish})


def test_a_peer_that_gives_no_sign_of_life_is_noticed() -> None:
    plan = tiny_plan([REMOTE, WORKER], dead_after_s=0.5)

    async def mute(world: RealWorld) -> None:
        await world.sleep(0.3)
        for connection in world.network._heartbeats.connections.values():
            connection.beat = lambda: None  # type: ignore[method-assign]
        await world.sleep(30)

    async def listening(world: RealWorld) -> None:
        await world.sleep(30)

    with pytest.raises(PeerLost, match=f"lost ({WORKER}|{REMOTE}): no sign of life for 0.5 s"):
        InProcess()({REMOTE: listening, WORKER: mute}, plan)


def test_a_node_whose_part_has_ended_waits_for_silent_peers() -> None:
    plan = tiny_plan([REMOTE, WORKER], dead_after_s=0.5)

    async def silent(world: RealWorld) -> str:
        world.network._heartbeats.stop()
        await world.sleep(2.0)
        return "done"

    async def ended(world: RealWorld) -> str:
        await world.sleep(0.1)
        return "done"

    for last in (REMOTE, WORKER):
        worlds = InProcess()
        ends = worlds({node: silent if node == last else ended for node in (REMOTE, WORKER)}, plan)
        assert ends == {REMOTE: "done", WORKER: "done"}
        told = [text for text in warnings(worlds, monitor_of(plan)) if "its end is waited for" in text]
        assert len(told) == (last != monitor_of(plan)), "the monitor leaves after all others"


def test_heartbeats_have_a_connection_of_their_own() -> None:
    async def look(world: RealWorld) -> set[tuple[str, str]]:
        await world.receive("a message")
        return set(world.network._incoming)

    async def send(world: RealWorld) -> None:
        await world.sleep(0.2)
        await world.send(REMOTE, Message(MessageKind.PUSH))

    assert InProcess()({REMOTE: look, WORKER: send})[REMOTE] == {(WORKER, BEAT), (WORKER, DATA)}


@for_each("kind", ["sum", "step", "encode"])
def test_long_computation_does_not_hold_up_messages(kind: str) -> None:
    arrived = threading.Event()

    async def busy(world: RealWorld) -> bool:
        async def receive() -> None:
            await world.receive("a message")
            arrived.set()

        receiving_ = world.spawn(receive(), "receiver")
        work = Work(kind, size_bytes=40_000_000, cost=Cost("a codec", 1e-9), elements=10_000_000)
        came: bool = await world.compute(work, lambda: arrived.wait(240))
        await world.wait(receiving_, "the message")
        return came

    assert InProcess()({REMOTE: busy, WORKER: sending(REMOTE, Message(MessageKind.PUSH))})[REMOTE]


def test_send_waits_while_the_receiver_takes_nothing() -> None:
    limits = ConnectionLimits(queue_bytes=4_000_000, inbox_bytes=2_000_000)

    async def flood(world: RealWorld) -> float:
        for key in range(60):
            await world.send(REMOTE, Message(MessageKind.PUSH, key=key, parts=(torch.ones(ONE_MEGABYTE),)))
            assert world.network._queues[REMOTE, DATA].queued_bytes <= 6_000_000
        return world.now()

    async def slow(world: RealWorld) -> tuple[float, list[int], int]:
        await world.sleep(0.5)
        started_s, held = world.now(), world._inbox_bytes
        keys = [(await world.receive("a megabyte")).key for _ in range(60)]
        return started_s, keys, held

    results = InProcess(limits)({WORKER: flood, REMOTE: slow})
    started_s, keys, held = results[REMOTE]
    assert keys == list(range(60))
    assert held <= 3_000_000 + 8 * PIECE_BYTES
    assert results[WORKER] > started_s, "60 MB were accepted although nobody had taken them"


def test_a_connection_that_is_accepted_while_the_inbox_is_full_is_not_read() -> None:
    many, few = 60, 3

    async def full(world: RealWorld) -> tuple[int, int]:
        while world._reading:
            await world.sleep(0.005)
        held = world._inbox_bytes
        await world.send(NEIGHBOUR, Message(MessageKind.PULL))
        while (NEIGHBOUR, DATA) not in world.network._incoming:
            await world.sleep(0.005)
        await world.sleep(0.1)  # what would be read is there
        late = world._inbox_bytes - held
        return late, len([await world.receive("a megabyte") for _ in range(many + few)])

    async def early(world: RealWorld) -> None:
        for _ in range(many):
            await world.send(REMOTE, Message(MessageKind.PUSH, parts=(torch.ones(ONE_MEGABYTE // 10),)))

    async def late(world: RealWorld) -> None:
        await world.receive("that the inbox is full")
        for _ in range(few):
            await world.send(REMOTE, Message(MessageKind.PUSH, parts=(torch.ones(1000),)))

    limits = ConnectionLimits(queue_bytes=4_000_000, inbox_bytes=1_000_000)
    found = InProcess(limits)({REMOTE: full, WORKER: early, NEIGHBOUR: late})[REMOTE]
    assert found == (0, many + few)


def test_a_message_to_a_node_that_has_ended_is_dropped_with_a_warning() -> None:
    worlds = InProcess()

    async def late(world: RealWorld) -> None:
        await world.send(NEIGHBOUR, Message(MessageKind.PUSH))
        await world.sleep(0.3)
        await world.send(NEIGHBOUR, Message(MessageKind.PUSH))

    worlds({WORKER: late, NEIGHBOUR: receiving(1), REMOTE: idle})
    assert warnings(worlds, WORKER) == [f"push for {NEIGHBOUR} dropped: it has ended"]


def test_a_congestion_control_that_is_not_there_ends_the_run() -> None:
    plan = tiny_plan([WORKER])
    plan = dataclasses.replace(plan, transport=dataclasses.replace(plan.transport, congestion_control="warp"))
    with pytest.raises(CapabilityError, match="'warp'"):
        InProcess()({WORKER: idle}, plan)


def test_the_watcher_sees_status_lines() -> None:
    worlds = InProcess()

    async def busy(world: RealWorld) -> None:
        world.record("round", t0=0.0, round=3, loss=0.25, samples=1)
        await world.send(REMOTE, Message(MessageKind.PUSH, parts=(torch.ones(1000),)))
        await world.receive("a long time", deadline_s=240.0)

    async def answer(world: RealWorld) -> None:
        await world.receive("the push")
        await world.sleep(0.8)
        await world.send(WORKER, Message(MessageKind.VALUE, parts=(torch.ones(10),)))

    worlds({WORKER: busy, REMOTE: answer})
    lines = [line for line in worlds.progress if line["kind"] == "status" and line["node"] == WORKER]
    first: dict[str, Any] = lines[0]
    assert (first["round"], first["loss"], first["waiting_for"]) == (3, 0.25, "a long time")
    assert (first["wan_up_bytes"], first["wan_down_bytes"]) == (4000, 0)
    assert lines[-1]["wan_down_bytes"] == 40
    assert [line["round"] for line in worlds.progress if line["kind"] == "round"] == [3]


def test_credentials_differ_from_run_to_run() -> None:
    assert new_credentials().run_id != new_credentials().run_id
