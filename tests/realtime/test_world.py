"""The real world keeps the contract: on one event loop, and as processes."""

from __future__ import annotations

import pytest

from tests.contract.world import WorldContract
from tests.realtime.in_process import InProcess


class TestInProcess(WorldContract):
    @pytest.fixture
    def run_worlds(self) -> InProcess:
        return InProcess()
