"""The remote level: a store with a rate and a latency, or a worker that has all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from testbed.engine.loading.requests import Requests
from testbed.training.cache.samples import Sample, SampleCoder
from testbed.training.datasets import Dataset
from testbed.world import World


def sample_of(dataset: Dataset, number: int) -> Sample:
    """Return a sample of the data set."""
    return Sample(dataset.train_inputs[number], dataset.train_labels[number])


class SampleSource(Protocol):
    """The last level, which has every sample."""

    async def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Return encoded samples in the order of ``numbers``."""


class SampleStore:
    """A token bucket of no depth: the requests of one worker follow each other at ``rate_bps``, after ``latency_s``."""

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
    """Another worker, which has all samples, reached over the links between the two."""

    def __init__(self, requests: Requests, node: str) -> None:
        self._requests, self._node = requests, node

    async def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        return await self._requests.ask(self._node, numbers, whole=True)
