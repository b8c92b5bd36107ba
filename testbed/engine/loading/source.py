"""The remote level: a store that gives so many bits a second after a latency, or a worker that has all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from testbed.engine.loading.requests import Requests
from testbed.training.cache.samples import Sample, SampleCoder
from testbed.training.datasets import Dataset
from testbed.world import World


def sample_of(dataset: Dataset, number: int) -> Sample:
    """Straight from the data set."""
    return Sample(dataset.train_inputs[number], dataset.train_labels[number])


class SampleSource(Protocol):
    """Where samples are that no level nearer has."""

    async def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Encoded samples, in the order asked for."""


class SampleStore:
    """A token bucket without tokens saved up: requests of one worker follow each other at ``rate_bps``."""

    def __init__(self, world: World, dataset: Dataset, coder: SampleCoder, rate_bps: float, latency_s: float) -> None:
        self._world, self._dataset, self._coder = world, dataset, coder
        self._rate_bps, self._latency_s, self._busy_until_s = rate_bps, latency_s, 0.0

    async def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        contents = [self._coder.encode(sample_of(self._dataset, number)) for number in numbers]
        now_s = self._world.now()
        self._busy_until_s = max(now_s, self._busy_until_s) + 8 * sum(map(len, contents)) / self._rate_bps
        await self._world.sleep(self._busy_until_s + self._latency_s - now_s)
        return contents


class SampleOwner:
    """Another worker that has all samples, reached over the links between."""

    def __init__(self, requests: Requests, node: str) -> None:
        self._requests, self._node = requests, node

    async def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        return await self._requests.ask(self._node, numbers, whole=True)
