"""Runs one coroutine function per rank in both worlds, on a Plan of equal data centres or of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.inbox import Inbox
from testbed.plan.model import Plan
from testbed.policy.collective.schedule import GroupShape
from testbed.results.events import read
from testbed.simulation.run import SimulationOptions, simulate
from testbed.world import World
from tests.contract.programs import Program
from tests.contract.tiny import tiny_plan
from tests.realtime.in_process import InProcess

Job = Callable[[World, Collectives], Awaitable[Any]]


class Runs(Protocol):
    """Runs programs by node; returns what each returned."""

    def __call__(self, programs: dict[str, Program], plan: Plan | None = None) -> dict[str, Any]: ...
    def events(self, node: str) -> list[dict[str, Any]]: ...


class Virtual:
    """In virtual time."""

    def __init__(self, directory: Path, options: SimulationOptions | None = None) -> None:
        self._directory, self._options, self._runs = directory, options, 0

    def __call__(self, programs: dict[str, Program], plan: Plan | None = None) -> dict[str, Any]:
        self._runs += 1
        plan = plan or tiny_plan(programs)
        exits = simulate(
            plan,
            lambda plan, node: programs[node.name],
            self._directory / str(self._runs),
            lambda event: None,
            self._options,
        )
        for exit_ in exits.values():
            if exit_.error is not None:
                raise exit_.error
        return {name: exit_.result for name, exit_ in exits.items()}

    def events(self, node: str) -> list[dict[str, Any]]:
        return list(read(self._directory / str(self._runs) / "events", node))


def worlds(kind: str, directory: Path) -> Runs:
    """``real``: sockets on loopback, one event loop. ``virtual``: simulated."""
    return InProcess() if kind == "real" else Virtual(directory)


def names_of(groups: list[int]) -> list[str]:
    """Workers of data centres a, b, …, so many each."""
    return [f"{chr(ord('a') + site)}/worker{i}" for site, count in enumerate(groups) for i in range(count)]


def shape_of(groups: list[int], segments: int = 1) -> GroupShape:
    starts = [sum(groups[:i]) for i in range(len(groups))]
    ranks = tuple(tuple(range(start, start + count)) for start, count in zip(starts, groups, strict=True))
    return GroupShape(sum(groups), ranks, segments)


def with_collectives(job: Job, ranks: list[str], **options: Any) -> Program:
    """A program that reads its mail while ``job`` runs."""

    async def program(world: World) -> Any:
        inbox = Inbox(world)
        collectives = Collectives(world, CollectiveMail(world, inbox), ranks, **options)
        world.spawn(inbox.run(), "inbox")
        return await job(world, collectives)

    return program


def run_all(runs: Runs, ranks: list[str], job: Job, **options: Any) -> list[Any]:
    """``job`` at every rank; results by rank."""
    results = runs({rank: with_collectives(job, ranks, **options) for rank in ranks})
    return [results[rank] for rank in ranks]
