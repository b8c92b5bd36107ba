"""Threads that have ended are gone: a fork right behind them copies no lock of theirs."""

import threading
from pathlib import Path

from testbed.processes.threads import EndingThreads


def test_threads_of_a_pool_are_gone_when_it_has_shut_down() -> None:
    for _ in range(100):  # most are not gone when Python says so
        with EndingThreads(2) as threads:
            found = {threads.submit(threading.get_native_id).result() for _ in range(4)}
        assert found and not any(Path(f"/proc/self/task/{each}").exists() for each in found)
