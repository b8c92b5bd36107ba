"""The virtual world keeps the contract of all worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.results.events import read
from testbed.simulation.run import simulate
from tests.contract.programs import Program, RunWorlds
from tests.contract.tiny import tiny_plan
from tests.contract.world import WorldContract


class VirtualWorlds:
    """Runs programs by ``simulate`` and reads their logs."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._runs = directory, 0

    def __call__(self, programs: Mapping[str, Program]) -> dict[str, Any]:
        self._runs += 1
        plan = replace(tiny_plan(programs), back_end="simulate")
        exits = simulate(plan, lambda plan, node: programs[node.name], self._run, lambda event: None)
        for exit_ in exits.values():
            if exit_.error is not None:
                raise exit_.error
        return {name: exit_.result for name, exit_ in exits.items()}

    def events(self, node: str) -> list[dict[str, Any]]:
        return list(read(self._run / "events", node))

    @property
    def _run(self) -> Path:
        return self._directory / str(self._runs)


class TestVirtualWorld(WorldContract):
    @pytest.fixture
    def run_worlds(self, tmp_path: Path) -> RunWorlds:
        return VirtualWorlds(tmp_path)
