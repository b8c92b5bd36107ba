"""A trainer whose batches come from a loader."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from testbed.engine.inbox import Inbox
from testbed.engine.loading.loader import Batch, CacheLevels, Fetch, Loader, Requests, SampleStore
from testbed.plan.model import NodePlan, Plan
from testbed.training.batches import Batches
from testbed.training.cache import FolderDisk, Level, Sample, SampleCoder
from testbed.training.datasets import Dataset, as_model_input, digest_of
from testbed.training.learner import Learner
from testbed.training.options.loading import Cached
from testbed.training.trainer import Computing, Trainer
from testbed.world import World


class LoadingTrainer(Trainer):
    """``gradient(step)`` needs the batch that ``prepare(step)`` has waited for."""

    def __init__(
        self, model: nn.Module, dataset: Dataset, batches: Batches, device: torch.device, computing: Computing,
        plan: Plan, node: NodePlan,
    ) -> None:  # fmt: skip
        super().__init__(model, dataset, batches, device, computing)
        self._plan, self._node = plan, node
        self._options = Cached(**plan.training.loading.options)
        self._ready: dict[int, Batch] = {}
        self._loader: Loader

    def open(self, world: World, inbox: Inbox) -> None:
        """Start to load; to be called before messages are read, as others may ask for samples."""
        requests, options, coder = Requests(world, inbox), self._options, SampleCoder(self._dataset)
        workers, here = self._plan.with_role("worker"), self._node.data_center
        fetch: Fetch = SampleStore(world, coder, options.rate, options.latency).fetch
        if options.source and options.source != here:
            owner = next(worker.name for worker in workers if worker.data_center == options.source)
            fetch = partial(requests.ask, owner, whole=True)
        neighbours = tuple(worker.name for worker in workers if worker.data_center == here)
        memory: Level[Sample] = Level(options.memory, lambda sample: sample.size_bytes)
        levels = CacheLevels(memory, self._disk(), requests, fetch, neighbours)
        self._loader = Loader(world, coder, self._batches, options, levels)
        requests.give = self._loader.give

    async def prepare(self, step: int, round_: int) -> None:
        """Wait for the batch of ``step``."""
        self._ready[step] = await self._loader.batch(step, round_)

    async def finish(self) -> None:
        """Wait for what is being loaded; to be called after the last step, while the others still answer."""
        await self._loader.finish()

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        inputs, labels = self._ready.pop(step)
        self.epoch = self._batches.epoch(step)
        return as_model_input(inputs.to(self._device)), labels.to(self._device)

    def _disk(self) -> Level[bytes] | FolderDisk:
        if not self._options.folder:
            return Level(self._options.disk, len)
        data = digest_of(self._dataset.train_inputs, self._dataset.train_labels)
        return FolderDisk(Path(self._options.folder) / self._node.name.replace("/", "."), self._options.disk, data)


def loading_of(learner: Learner) -> LoadingTrainer | None:
    """Return the loading trainer, behind a guard if there is one; ``None`` if samples are in memory."""
    inner = getattr(learner, "inner", learner)
    return inner if isinstance(inner, LoadingTrainer) else None
