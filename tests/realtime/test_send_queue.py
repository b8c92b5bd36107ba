"""The send queue: order, limits."""

from __future__ import annotations

import asyncio

import torch

from testbed.realtime.send_queue import SendQueue


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
                if (held_up := queue.accepted(item)) is not None:
                    await held_up
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
            held_up = queue.accepted(queue.post(b"x"))
            assert held_up is not None
            queue.clear()
            await held_up
            return len(queue)

        assert asyncio.run(run()) == 0
