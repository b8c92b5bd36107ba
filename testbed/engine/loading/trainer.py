"""A trainer whose batches come from a loader, and what roles call for it, which does nothing with others."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from testbed.engine.inbox import Inbox
from testbed.engine.loading.loader import Batch, CacheLevels, Loader, Requests, SampleOwner, SampleSource, SampleStore
from testbed.plan.model import NodePlan, Plan
from testbed.training.batches import Batches
from testbed.training.cache.levels import Disk, FolderDisk, MemoryLevel, RunDisk, SampleCoder
from testbed.training.datasets import Dataset, as_model_input, digest_of
from testbed.training.learner import Learner
from testbed.training.options.loading import Cached
from testbed.training.trainer import Trainer
from testbed.world import World


class LoadingTrainer(Trainer):
    """``gradient(step)`` needs the batch that ``prepare(step)`` has waited for."""

    def __init__(
        self, model: nn.Module, dataset: Dataset, batches: Batches, device: torch.device, plan: Plan, node: NodePlan
    ) -> None:
        super().__init__(model, dataset, batches, device)
        self._plan, self._node = plan, node
        self._options = Cached(**plan.training.loading.options)
        self._ready: dict[int, Batch] = {}
        self._loader: Loader

    def open(self, world: World, inbox: Inbox) -> None:
        """Start to load, and to give samples to others."""
        requests = Requests(world, inbox)
        neighbours = tuple(w.name for w in self._plan.with_role("worker") if w.data_center == self._node.data_center)
        levels = CacheLevels(
            MemoryLevel(self._options.memory), self._disk(), requests, self._source(world, requests), neighbours
        )
        self._loader = Loader(world, self._dataset, self._batches, self._options, levels)
        requests.give = self._loader.give

    async def prepare(self, step: int, round_: int) -> None:
        """Wait for the batch of ``step``."""
        self._ready[step] = await self._loader.batch(step, round_)

    async def finish(self) -> None:
        """Wait for what is being loaded."""
        await self._loader.finish()

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        inputs, labels = self._ready.pop(step)
        return as_model_input(inputs.to(self._device)), labels.to(self._device)

    def _disk(self) -> Disk:
        if not self._options.folder:
            return RunDisk(self._options.disk)
        data = digest_of(self._dataset.train_inputs, self._dataset.train_labels)
        return FolderDisk(Path(self._options.folder) / self._node.name.replace("/", "."), self._options.disk, data)

    def _source(self, world: World, requests: Requests) -> SampleSource:
        options = self._options
        if options.source and options.source != self._node.data_center:
            owner = next(w.name for w in self._plan.with_role("worker") if w.data_center == options.source)
            return SampleOwner(requests, owner)
        return SampleStore(world, self._dataset, SampleCoder(self._dataset), options.rate, options.latency)


def begin_loading(learner: Learner, world: World, inbox: Inbox) -> None:
    """Start to load; to be called before messages are read, as others may ask for samples."""
    loading = _loading(learner)
    if loading is not None:
        loading.open(world, inbox)


async def wait_for_batch(learner: Learner, step: int, round_: int) -> None:
    """Return when the batch of ``step`` is loaded."""
    loading = _loading(learner)
    if loading is not None:
        await loading.prepare(step, round_)


async def finish_loading(learner: Learner) -> None:
    """Wait for what is being loaded; to be called after the last step, while the others still answer."""
    loading = _loading(learner)
    if loading is not None:
        await loading.finish()


def _loading(learner: Learner) -> LoadingTrainer | None:
    """Return the loading trainer, behind a guard if there is one."""
    inner = getattr(learner, "inner", learner)
    return inner if isinstance(inner, LoadingTrainer) else None
