"""The contract of a placement: which worker holds which stage of a pipeline, and the shipped placements.

``docs/axes/schedule.md`` explains it with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.pipeline.base import Hop
from testbed.preset import Preset

_MOST_TRIED = 8  # data centres whose orders are all tried


@dataclass(frozen=True, slots=True)
class Ground:
    """The data centres and stages for which a placement is made.

    sites     data centres with their numbers of workers, in the order of the scenario
    stages    stages of the pipeline; the number of workers is a multiple of it
    distance  from one data centre to another: seconds for which a bit occupies the slowest link, and the delay
    """

    sites: tuple[tuple[str, int], ...]
    stages: int
    distance: Callable[[str, str], Hop]

    @property
    def replicas(self) -> int:
        return sum(workers for _, workers in self.sites) // self.stages


class Placement(ABC):
    """Made as ``cls(cls.Options(...))``.

    presets  named techniques that use this class; a subclass does not inherit them
    """

    presets: ClassVar[tuple[Preset, ...]] = ()
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any) -> None:
        self.options = options

    def problems(self, ground: Ground) -> Iterator[tuple[str, str]]:
        """Yield pairs of why this placement is impossible on this ground, and the cure."""
        yield from ()

    @abstractmethod
    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        """Return the stage of each worker, by data centre; all stages have equally many workers.

        The n-th worker of each stage, in the scenario's order of data centres, belongs to replica n.
        """


def _along(order: tuple[tuple[str, int], ...], replicas: int) -> dict[str, tuple[int, ...]]:
    """Return stages along data centres in this order: each stage is on ``replicas`` consecutive workers."""
    placed: dict[str, tuple[int, ...]] = {}
    first = 0
    for site, workers in order:
        placed[site] = tuple(number // replicas for number in range(first, first + workers))
        first += workers
    return placed


class InOrder(Placement):
    """Stages along the data centres, in the scenario's order; the replicas of a stage are on consecutive workers."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        return _along(ground.sites, ground.replicas)


class WholeReplicas(Placement):
    """Whole replicas inside data centres: gradients cross the WAN, and activations do not."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def problems(self, ground: Ground) -> Iterator[tuple[str, str]]:
        for site, workers in ground.sites:
            if workers % ground.stages:
                yield (
                    f"{site} has {workers} workers, which cannot be divided into replicas of {ground.stages} stages",
                    "write 'placement: in_order', or other numbers of workers",
                )

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        return {site: tuple(number % ground.stages for number in range(workers)) for site, workers in ground.sites}


class Listed(Placement):
    """Stages along the data centres in an order that you give."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """In which order stages lie along the data centres."""

        order: str = option("", "data centres, separated by blanks, from that of the first stage to that of the last")

    def problems(self, ground: Ground) -> Iterator[tuple[str, str]]:
        names = [site for site, _ in ground.sites]
        if sorted(self.options.order.split()) != sorted(names):
            yield (
                f"order: '{self.options.order}' does not name each data centre once",
                f"write e.g. 'order: {' '.join(names)}'",
            )

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        workers = dict(ground.sites)
        return _along(tuple((site, workers[site]) for site in self.options.order.split()), ground.replicas)


class Search(Placement):
    """Stages along the data centres in the order with the smallest largest distance between neighbours.

    With up to 8 data centres, all orders are tried. With more, one order is tried for each first data centre, in which
    the nearest remaining one always comes next (Atlas' choice of data centres is a heuristic, too).
    """

    @dataclass(frozen=True, slots=True)
    class Options:
        """How the distance between data centres is judged."""

        bits: float = option(
            1e8, "size of an activation in bits, by which the distance between two stages is judged", min=1
        )

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        orders = permutations(ground.sites) if len(ground.sites) <= _MOST_TRIED else self._nearest(ground)
        best = min(orders, key=lambda order: self._cost(order, ground))
        return _along(tuple(best), ground.replicas)

    def _seconds(self, a: str, b: str, ground: Ground) -> float:
        hop = ground.distance(a, b)
        return float(hop.occupied_s * self.options.bits + hop.delay_s)

    def _cost(self, order: tuple[tuple[str, int], ...], ground: Ground) -> tuple[float, float]:
        """Return the largest distance between neighbours, and the sum of all distances, in seconds."""
        ways = [self._seconds(a, b, ground) for (a, _), (b, _) in pairwise(order)]
        return max(ways, default=0.0), sum(ways)

    def _nearest(self, ground: Ground) -> Iterator[tuple[tuple[str, int], ...]]:
        for first in ground.sites:
            order = [first]
            left = [site for site in ground.sites if site != first]
            while left:
                nearest = min(left, key=lambda site: self._seconds(order[-1][0], site[0], ground))
                order.append(nearest)
                left.remove(nearest)
            yield tuple(order)
