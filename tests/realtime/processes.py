"""Several real nodes as forked processes; what each returns comes back as a record of its own."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.plan.model import NodePlan, Plan
from testbed.realtime.fleet import Fleet, Launch
from testbed.realtime.node import AnyRole
from testbed.realtime.world import RealWorld
from testbed.results.events import read
from tests.contract.tiny import tiny_plan


class Processes:
    """``run_worlds`` of the contract suite; each call has a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._base = directory
        self._runs = 0
        self.directory = directory
        self.progress: list[dict[str, Any]] = []

    def __call__(self, programs: Mapping[str, AnyRole]) -> dict[str, Any]:
        self._runs += 1
        self.directory = self._base / str(self._runs)
        self.directory.mkdir()
        Fleet(tiny_plan(programs), self.launch(programs)).run(self.progress.append)
        return {name: pickle.loads(self._result(name).read_bytes()) for name in programs}

    def launch(self, programs: Mapping[str, AnyRole], **options: Any) -> Launch:
        def make_role(plan: Plan, node: NodePlan) -> AnyRole:
            async def role(world: RealWorld) -> None:
                result = await programs[node.name](world)
                self._result(node.name).write_bytes(pickle.dumps(result))

            return role

        return Launch(make_role=make_role, event_directory=self.directory, **options)

    def events(self, node: str) -> list[dict[str, Any]]:
        return list(read(self.directory, node))

    def _result(self, node: str) -> Path:
        return self.directory / (node.replace("/", ".") + ".result")
