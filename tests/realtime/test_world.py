"""The real world keeps the contract: on one event loop, and as processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.world import WorldContract
from tests.realtime.in_process import InProcess
from tests.realtime.processes import Processes


class TestInProcess(WorldContract):
    @pytest.fixture
    def run_worlds(self) -> InProcess:
        return InProcess()


class TestUnderTls(WorldContract):
    @pytest.fixture
    def run_worlds(self) -> InProcess:
        return InProcess(tls=True)


class TestAsProcesses(WorldContract):
    @pytest.fixture
    def run_worlds(self, tmp_path: Path) -> Processes:
        return Processes(tmp_path)
