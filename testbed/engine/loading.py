"""Loads training samples ahead of the steps that need them, each from the nearest level that has it.

The levels are memory (decoded samples) → disk (encoded) → the neighbour that keeps the sample (if samples are spread
over a data centre's workers) → the remote source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.training.batches import Batches
from testbed.training.cache import FolderDisk, Level, Sample, SampleCoder
from testbed.training.datasets import Dataset, as_model_input, digest_of
from testbed.training.learner import Learner
from testbed.training.options.datasets import Cached
from testbed.training.trainer import Computing, Trainer
from testbed.world import Future, Work, World

Batch = tuple[Tensor, Tensor]
LEVELS = ("memory", "disk", "neighbour", "remote")


class Requests:
    """Workers' requests for samples from each other. One message contains several encoded samples.

    Requests name samples by their numbers in the data set. The key of the messages FETCH and SAMPLES is the number of
    the request, so that several requests may be pending.

    ``give(numbers, whole)`` returns samples for another worker; ``whole``: from the whole data set, not this worker's
    share
    """

    def __init__(self, world: World, inbox: Inbox, give: Callable[[list[int], bool], Awaitable[list[bytes]]]) -> None:
        self._world = world
        self._give = give
        self._asked = 0
        self._answers: dict[int, Future[Message]] = {}
        inbox.on(MessageKind.FETCH, lambda message: world.spawn(self._answer(message), "answer a request for samples"))
        inbox.on(MessageKind.SAMPLES, lambda message: self._answers.pop(message.key).set_result(message))

    async def ask(self, node: str, numbers: Sequence[int], *, whole: bool = False) -> list[bytes]:
        """Return the encoded samples of these numbers from ``node``."""
        self._asked += 1
        number = self._asked
        self._answers[number] = answer = self._world.future()
        parts = (torch.tensor(numbers, dtype=torch.int64),)
        await self._world.send(node, Message(MessageKind.FETCH, number, -1, {"whole": whole}, parts))
        message = await self._world.wait(answer, f"samples from {node}")
        data, sizes = message.parts
        return [bytes(part.numpy()) for part in torch.split(data, sizes.tolist())]

    async def _answer(self, message: Message) -> None:
        contents = await self._give(message.parts[0].tolist(), message.meta["whole"])
        data = torch.frombuffer(bytearray(b"".join(contents)), dtype=torch.uint8)
        sizes = torch.tensor([len(content) for content in contents])
        await self._world.send(message.sender, Message(MessageKind.SAMPLES, message.key, -1, {}, (data, sizes)))


class SampleStore:
    """The remote source of samples. It serves one worker's requests one after the other at ``rate_bps``.

    Each answer comes ``latency_s`` after its bytes (a token bucket of depth 0).
    """

    def __init__(self, world: World, coder: SampleCoder, rate_bps: float, latency_s: float) -> None:
        self._world = world
        self._coder = coder
        self._rate_bps = rate_bps
        self._latency_s = latency_s
        self._busy_until_s = 0.0

    async def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Return encoded samples in the order of ``numbers``."""
        contents = [self._coder.encode(self._coder.sample(number)) for number in numbers]
        now_s = self._world.now()
        self._busy_until_s = max(now_s, self._busy_until_s) + 8 * sum(map(len, contents)) / self._rate_bps
        await self._world.sleep(self._busy_until_s + self._latency_s - now_s)
        return contents


class Loader:
    """The loader of one worker. A sample that is being loaded is not requested a second time."""

    def __init__(
        self, world: World, inbox: Inbox, plan: Plan, node: NodePlan, dataset: Dataset, batches: Batches
    ) -> None:
        self._world = world
        self._coder = SampleCoder(dataset)
        self._batches = batches
        self._options = options = Cached(**plan.training.loading.options)
        workers = plan.with_role("worker")
        self._neighbours = tuple(worker.name for worker in workers if worker.data_center == node.data_center)
        self._memory: Level[Sample] = Level(options.memory, lambda sample: sample.size_bytes)
        self._disk: Level[bytes] | FolderDisk = Level(options.disk, len)
        if options.folder:
            digest = digest_of(dataset.train_inputs, dataset.train_labels)
            folder = Path(options.folder).expanduser() / node.name.replace("/", ".")
            self._disk = FolderDisk(folder, options.disk, digest)
        self._requests = Requests(world, inbox, self._give)
        # fetches from the last level, which has every sample
        self._fetch: Callable[[Sequence[int]], Awaitable[list[bytes]]]
        self._fetch = SampleStore(world, self._coder, options.rate, options.latency).fetch
        if options.source and options.source != node.data_center:
            owner = next(worker.name for worker in workers if worker.data_center == options.source)
            self._fetch = partial(self._requests.ask, owner, whole=True)
        self._tasks: dict[int, Future[list[Sample]]] = {}
        self._pending: dict[int, Future[Sample]] = {}
        self._hits: Counter[str] = Counter()  # by level, since the last record

    async def batch(self, step: int, round_: int) -> Batch:
        """Return inputs and labels of ``step``, bit for bit those of the data set. Start to load the next steps."""
        started_s = self._world.now()
        for ahead in range(step, step + self._options.prefetch + 1):
            if ahead not in self._tasks:
                self._tasks[ahead] = self._world.spawn(self._load(ahead), f"loading step {ahead}")
        samples = await self._world.wait(self._tasks.pop(step), f"the batch of step {step}")
        hits = {level: self._hits.pop(level, 0) for level in LEVELS}
        self._world.record(
            "load", t0=started_s, round=round_, step=step, waited_s=round(self._world.now() - started_s, 6), **hits
        )
        return torch.stack([sample.input for sample in samples]), torch.stack([sample.label for sample in samples])

    async def _give(self, numbers: list[int], whole: bool) -> list[bytes]:
        """Return encoded samples for another worker: of this worker's share, or (``whole``) of the whole data set."""
        if whole:
            return [self._coder.encode(self._coder.sample(number)) for number in numbers]
        return [self._coder.encode(sample) for sample in await self._samples(numbers, count=False)]

    async def finish(self) -> None:
        """Wait for the samples that are being loaded, so that no other worker sends to this one after its end."""
        for step, task in list(self._tasks.items()):
            await self._world.wait(task, f"the batch of step {step}")
        self._tasks.clear()

    async def _load(self, step: int) -> list[Sample]:
        return await self._samples(self._batches.indices(step).tolist(), count=True)

    async def _samples(self, numbers: Sequence[int], *, count: bool) -> list[Sample]:
        found = {number: sample for number in numbers if (sample := self._memory.get(number)) is not None}
        awaited = {number: self._pending[number] for number in numbers if number in self._pending}
        missing = [n for n in dict.fromkeys(numbers) if n not in found and n not in awaited]
        if count:  # a sample that is being loaded, or is twice in a batch, counts as found in memory
            self._hits["memory"] += len(numbers) - len(missing)
        for number in missing:
            self._pending[number] = self._world.future()
        for number, sample in zip(missing, await self._from_below(missing, count), strict=True):
            self._keep(number, sample)
            found[number] = sample
        for number, future in awaited.items():
            found[number] = await self._world.wait(future, "a sample that is being loaded")
        return [found[number] for number in numbers]

    def _keep(self, number: int, sample: Sample) -> None:
        if self._owner(number) == self._world.node:
            self._memory.put(number, sample)
        self._pending.pop(number).set_result(sample)

    async def _from_below(self, numbers: list[int], count: bool) -> list[Sample]:
        """Get the encoded samples from disk, the remote source or neighbours, and return them decoded.

        Decoding a sample from disk or the remote source takes ``options.decode`` seconds.
        """
        if not numbers:
            return []
        mine = [number for number in numbers if self._owner(number) == self._world.node]
        on_disk = await self._world.compute(Work("load"), lambda: self._on_disk(mine))
        remote = [number for number in mine if number not in on_disk]
        fetched = dict(zip(remote, await self._fetch(remote), strict=True)) if remote else {}
        for number, content in fetched.items():
            self._disk.put(number, content)
        asked: dict[int, bytes] = {}
        others = [number for number in numbers if self._owner(number) != self._world.node]
        for owner in self._neighbours:
            if theirs := [number for number in others if self._owner(number) == owner]:
                asked |= zip(theirs, await self._requests.ask(owner, theirs), strict=True)
        if count:
            self._hits.update(disk=len(on_disk), remote=len(fetched), neighbour=len(asked))
        if self._options.decode:
            await self._world.sleep(self._options.decode * (len(on_disk) + len(fetched)))
        encoded = {**on_disk, **fetched, **asked}
        return [self._coder.decode(encoded[number]) for number in numbers]

    def _on_disk(self, numbers: list[int]) -> dict[int, bytes]:
        found = {number: self._disk.get(number) for number in numbers}
        return {number: content for number, content in found.items() if content is not None}

    def _owner(self, number: int) -> str:
        """Return the worker that fetches and keeps a sample for the data centre."""
        if not self._options.spread:
            return self._world.node
        return self._neighbours[number % len(self._neighbours)]


class LoadingTrainer(Trainer):
    """A trainer whose batches come from a loader. Await ``prepare(step)`` before ``gradient(step)``.

    Call ``open`` before messages are read, as other workers may ask for samples. Call ``loader.finish`` after the last
    step, while other workers still answer.
    """

    loader: Loader

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset,
        batches: Batches,
        device: torch.device,
        computing: Computing,
        plan: Plan,
        node: NodePlan,
    ) -> None:
        super().__init__(model, dataset, batches, device, computing)
        self._plan = plan
        self._node = node
        self._ready: dict[int, Batch] = {}

    def open(self, world: World, inbox: Inbox) -> None:
        self.loader = Loader(world, inbox, self._plan, self._node, self._dataset, self._batches)

    async def prepare(self, step: int, round_: int) -> None:
        self._ready[step] = await self.loader.batch(step, round_)

    def _batch(self, step: int) -> Batch:
        inputs, labels = self._ready.pop(step)
        self.epoch = self._batches.epoch(step)
        return as_model_input(inputs.to(self.device)), labels.to(self.device)


def loading_of(learner: Learner) -> LoadingTrainer | None:
    """Return the loading trainer, also from inside a guard; ``None`` if all samples are in memory."""
    inner = getattr(learner, "inner", learner)
    return inner if isinstance(inner, LoadingTrainer) else None
