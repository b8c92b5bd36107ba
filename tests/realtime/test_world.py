"""The real world keeps the contract: on one event loop, and as processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from testbed.realtime.world import RealWorld
from testbed.world import Work
from tests.contract.messaging import MessageContract
from tests.contract.tiny import STEP_TIME_S, TICK_S, WORKER
from tests.contract.world import WorldContract
from tests.realtime.in_process import InProcess
from tests.realtime.processes import Processes


class TestInProcess(WorldContract):
    @pytest.fixture
    def run_worlds(self) -> InProcess:
        return InProcess()


class TestUnderTls(MessageContract):
    @pytest.fixture
    def run_worlds(self) -> InProcess:
        return InProcess(tls=True)


class TestAsProcesses(WorldContract):
    @pytest.fixture
    def run_worlds(self, tmp_path: Path) -> Processes:
        return Processes(tmp_path)


def test_a_pause_during_a_step_is_not_made_up_for_by_the_next_one() -> None:
    async def program(world: RealWorld) -> float:
        asyncio.get_running_loop().call_later(STEP_TIME_S / 2, time.sleep, 4 * STEP_TIME_S)
        await world.compute(Work("step"), lambda: None)
        paused_s = world.now()
        await world.compute(Work("step"), lambda: None)
        return world.now() - paused_s

    assert InProcess()({WORKER: program})[WORKER] > STEP_TIME_S - TICK_S
