"""The first stages in the largest data centres."""

from dataclasses import dataclass

from testbed.policy.pipeline.placement import Ground, Placement


class LargestFirst(Placement):
    """Stages along the data centres by their numbers of workers, the largest first."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        placed: dict[str, tuple[int, ...]] = {}
        first = 0
        for site, workers in sorted(ground.sites, key=lambda each: -each[1]):
            placed[site] = tuple(number // ground.replicas for number in range(first, first + workers))
            first += workers
        return placed
