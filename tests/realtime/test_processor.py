"""Tokens: steps that really compute at one time."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from testbed.realtime.processor import Tokens


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

    def test_the_wait_for_one_has_a_deadline(self) -> None:
        tokens = Tokens.make(0)
        with pytest.raises(TimeoutError, match="no core"):
            tokens.acquire(0.02)
        tokens.close()
