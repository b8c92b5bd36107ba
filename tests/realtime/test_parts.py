"""The small parts: queue, liveness, tokens, first cause, socket options."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import threading
import time

import pytest
import torch

from testbed.errors import CapabilityError, RunFailed, WaitTimeout
from testbed.plan.model import TransportPlan, monitor_of
from testbed.realtime.fleet_status import FleetStatus, NodeExit, first_cause
from testbed.realtime.heartbeat import Liveness
from testbed.realtime.processor import Tokens
from testbed.realtime.send_queue import SendQueue
from testbed.realtime.sockets import configure, listen
from tests.contract.tiny import REMOTE, WORKER, tiny_plan


class TestSendQueue:
    def test_larger_priority_first_then_first_come_first_served(self) -> None:
        queue = SendQueue(100)
        for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)):
            queue.post(name.encode(), priority=priority)
        assert b"".join(queue.pop().header for _ in range(5)) == b"beacd"
        assert queue.queued_bytes == 0

    def test_a_sender_waits_while_the_queue_is_over_its_limit(self) -> None:
        async def run() -> list[str]:
            queue, order = SendQueue(1000), []

            async def send(name: str, priority: int) -> None:
                item = queue.post(b"", (torch.zeros(600, dtype=torch.uint8),), priority)
                await queue.accepted(item)
                order.append(name)

            tasks = [asyncio.create_task(send(name, p)) for name, p in (("one", 0), ("two", 0), ("urgent", 9))]
            await asyncio.sleep(0.001)
            assert order == ["one"]
            queue.pop()
            await asyncio.sleep(0.001)
            assert order == ["one", "urgent"], "what has left the queue no longer holds its sender"
            queue.pop()
            await asyncio.gather(*tasks)
            return order

        assert asyncio.run(run()) == ["one", "urgent", "two"]

    def test_clear_lets_all_go_on(self) -> None:
        async def run() -> int:
            queue = SendQueue(0)
            task = asyncio.create_task(queue.accepted(queue.post(b"x")))
            await asyncio.sleep(0)
            dropped = queue.clear()
            await task
            return dropped

        assert asyncio.run(run()) == 1


class TestLiveness:
    def test_silence_is_death_after_its_limit(self) -> None:
        liveness = Liveness(1.0, 10.0)
        heard = {"a": 0.0, "b": 8.0}
        assert [liveness.silent(heard, float(now)) for now in range(9, 12)] == [[], [], ["a"]]

    def test_nobody_is_blamed_for_ones_own_sleep(self) -> None:
        liveness = Liveness(1.0, 10.0)
        assert liveness.silent({"a": 0.0}, 1.0) == []
        assert liveness.silent({"a": 0.0}, 60.0) == []
        assert [liveness.silent({"a": 0.0}, 60.0 + n) for n in range(1, 12)][-2:] == [[], ["a"]]

    def test_the_monitor_is_the_scheduler_if_there_is_one(self) -> None:
        assert monitor_of(tiny_plan([WORKER, "east/scheduler"])) == "east/scheduler"
        assert monitor_of(tiny_plan([WORKER, REMOTE])) == WORKER


class TestTokens:
    def test_no_more_than_count_hold_one(self) -> None:
        tokens, holding, most = Tokens.make(2), [0], [0]

        def work() -> None:
            tokens.acquire(10.0)
            holding[0] += 1
            most[0] = max(most[0], holding[0])
            time.sleep(0.01)
            holding[0] -= 1
            tokens.release()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        tokens.close()
        assert most[0] == 2

    def test_who_dies_with_one_takes_it_not_along(self) -> None:
        tokens = Tokens.make(1, holders=2)
        pid = os.fork()
        if pid == 0:
            tokens.of(1).acquire(10.0)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        with pytest.raises(TimeoutError, match="no core"):
            tokens.acquire(0.02)
        for _ in range(2):
            tokens.give_back(1)
        tokens.acquire(0.02)
        with pytest.raises(TimeoutError, match="no core"):
            tokens.of(1).acquire(0.02)
        tokens.give_back(1)  # it holds none
        tokens.release()
        tokens.close()

    def test_the_wait_for_one_has_a_deadline(self) -> None:
        tokens = Tokens.make(0)
        with pytest.raises(TimeoutError, match="no core"):
            tokens.acquire(0.02)
        tokens.close()


class TestWatch:
    def test_the_killed_node_explains_those_that_lost_it(self) -> None:
        lost = NodeExit("b", 4, cause="PeerLost", message="b lost a: gone")
        own = NodeExit("c", 1, cause="ValueError", message="nan")
        killed = NodeExit("a", -9)
        told = NodeExit("d", -15, stopped=True)
        assert first_cause([told, lost, own, killed]) is killed
        assert first_cause([told, lost, own]) is own
        assert first_cause([told, lost]) is lost
        assert first_cause([told, NodeExit("e", 0)]) is None

    def test_errors_name_node_and_cause(self) -> None:
        assert str(NodeExit("a", -9).error()) == "a was killed by signal 9, SIGKILL (out of memory?)"
        assert str(NodeExit("a", 3).error()) == "a ended with exit status 3 and without a message"
        assert isinstance(NodeExit("a", 3, cause="CapabilityError", message="m").error(), CapabilityError)
        assert str(NodeExit("c", 1, cause="ValueError", message="nan").error()) == "c: ValueError: nan"
        assert isinstance(NodeExit("c", 5, cause="WaitTimeout", wait=("c", "x", 1.0, 2.0)).error(), WaitTimeout)

    def test_the_status_tells_who_waits_and_when_anybody_advanced(self) -> None:
        status = FleetStatus(100.0)
        line = {"node": "a", "waits": [["a push", 2.0]], "activity": 3}
        status.update(line, 101.0)
        status.update(line, 105.0)
        status.update({"node": "b", "waits": [], "activity": 0}, 106.0)
        assert status.advanced_at_s == 101.0
        assert status.longest_wait() == ("a", "a push", 2.0)
        assert status.wait_graph().splitlines() == [
            "a waits for a push since t = 2.000 s",
            "b waits for nothing: it computes, or does not run",
        ]


class TestSockets:
    def test_options_are_set_from_the_plan(self) -> None:
        with listen(("127.0.0.1", 0)) as sock:
            transport = TransportPlan(congestion_control="reno", unsent_limit_bytes=65_536)
            configure(sock, dataclasses.replace(tiny_plan([WORKER]), transport=transport))
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"reno\0")
            assert sock.getsockopt(socket.IPPROTO_TCP, 25) == 65_536
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

    def test_a_congestion_control_that_is_not_there_is_an_error_with_its_cure(self) -> None:
        transport = dataclasses.replace(TransportPlan(), congestion_control="warp")
        with listen(("127.0.0.1", 0)) as sock, pytest.raises(CapabilityError, match=r"'warp'.*available: .*modprobe"):
            configure(sock, dataclasses.replace(tiny_plan([WORKER]), transport=transport))

    def test_an_address_that_is_taken_is_named(self) -> None:
        with listen(("127.0.0.1", 0)) as sock, pytest.raises(RunFailed, match=f"127.0.0.1:{sock.getsockname()[1]}: "):
            listen(sock.getsockname())
