"""Tokens: steps that really compute at one time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from testbed.realtime.processor import Processor, Tokens


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
            thread.join(240)
        tokens.close()
        assert most[0] == 2

    def test_the_token_of_a_killed_process_can_be_given_back(self) -> None:
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

    def test_shares_of_a_gpu_add_up_to_its_whole(self) -> None:
        """Three of 40 in 100: two at a time; one of 60 waits for both, and nobody keeps a part of what it needs."""
        tokens = Tokens.make(100, holders=4)
        small, large = [tokens.of(holder, 40) for holder in range(3)], tokens.of(3, 60)
        small[0].acquire(0.02)
        small[1].acquire(0.02)
        for late in (small[2], large):
            with pytest.raises(TimeoutError, match="no core or GPU"):
                late.acquire(0.02)
        small[0].release()
        small[1].release()
        large.acquire(0.02)
        small[2].acquire(0.02)
        with pytest.raises(TimeoutError):
            small[0].acquire(0.02)
        tokens.give_back(3)  # killed
        small[0].acquire(0.02)
        tokens.close()

    def test_who_is_stopped_while_it_takes_several_takes_all_of_them_when_it_goes_on(self) -> None:
        """Its part and its turn were given back, so that others do not stand still."""
        tokens = Tokens.make(4, holders=3)
        stopped, other = tokens.of(0, 4), tokens.of(1, 4)
        tokens.of(2).acquire(0.02)
        process = os.fork()
        if process == 0:
            stopped.acquire(10.0)
            os._exit(0)
        while tokens.holding[0] < 3:
            time.sleep(0.001)
        os.kill(process, signal.SIGSTOP)
        os.waitpid(process, os.WUNTRACED)
        tokens.give_back(0)
        tokens.of(2).release()
        os.kill(process, signal.SIGCONT)  # it finds all four, but its turn is over
        assert os.waitpid(process, 0) == (process, 0) and tokens.holding[:2] == bytes([4, 0])
        with pytest.raises(TimeoutError):
            other.acquire(0.02)
        stopped.release()
        other.acquire(0.02)
        tokens.close()

    def test_the_wait_for_one_has_a_deadline(self) -> None:
        tokens = Tokens.make(0)
        with pytest.raises(TimeoutError, match="no core"):
            tokens.acquire(0.02)
        tokens.close()


class TestCodecs:
    """Small work is done at once, large work in a thread; each in the order of the calls."""

    def play(self, *work: tuple[int, float]) -> list[tuple[int, bool, int]]:
        """Do pieces of (elements, seconds). Return elements, whether off the event loop, and the place in the order."""
        done: list[tuple[int, bool, int]] = []

        async def run() -> None:
            processor, loop_thread = Processor(Tokens.make(1), 10.0), threading.get_ident()

            def piece(elements: int, work_s: float) -> None:
                time.sleep(work_s)
                done.append((elements, threading.get_ident() != loop_thread, len(done)))

            async with asyncio.TaskGroup() as group:
                for elements, work_s in work:
                    group.create_task(processor.code("a codec", elements, lambda e=elements, s=work_s: piece(e, s)))
            processor.close()

        asyncio.run(run())
        return done

    def test_small_work_stays_in_the_event_loop(self) -> None:
        assert self.play((100, 0.0)) == [(100, False, 0)]

    def test_large_work_leaves_it(self) -> None:
        assert self.play((1_000_000, 0.0)) == [(1_000_000, True, 0)]

    def test_small_work_does_not_overtake_large_work_before_it(self) -> None:
        assert self.play((1_000_000, 0.05), (100, 0.0)) == [(1_000_000, True, 0), (100, True, 1)]

    def test_work_that_was_slow_leaves_it_the_next_time(self) -> None:
        assert self.play((100, 0.01), (100, 0.0)) == [(100, False, 0), (100, True, 1)]
