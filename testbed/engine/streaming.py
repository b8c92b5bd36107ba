"""Local steps in rounds that each send one fragment of the model (``policy.sync.streaming``)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine.local_work import LocalResult, LocalSteps, copying, joined_result
from testbed.errors import ScenarioError
from testbed.policy.events import Contribution
from testbed.policy.sync.streaming import Streaming, fragments_of
from testbed.training.learner import Learner
from testbed.training.optimizers import ModelOptimizer
from testbed.world import World


def check_fragments(fragments: int, tensors: int) -> None:
    """Raise ``ScenarioError`` if a model has fewer tensors than fragments: each fragment needs one."""
    if fragments > tensors:
        raise ScenarioError(
            f"sync.fragments: the model has {tensors} tensors, but {fragments} fragments need one each; "
            f"write {tensors} or fewer"
        )


class StreamedSteps(LocalSteps):
    """Local steps with streaming. Besides the trained model, it keeps each fragment as of its last outer step."""

    remembers = (*LocalSteps.remembers, "_outer", "_kept", "_sent")

    def __init__(self, learner: Learner, optimizer: ModelOptimizer, weight: float, streaming: Streaming) -> None:
        super().__init__(learner, optimizer, Contribution.DELTA, weight)
        self._streaming = streaming
        values = optimizer.values()
        check_fragments(streaming.fragments, len(values))
        self.fragments = fragments_of([value.numel() for value in values], streaming.fragments)
        self._outer = [value.clone() for value in values]
        self.is_late = streaming.overlap_steps > 0
        self._keeps = False
        self._kept = dict[int, Tensor]()  # by key: values received early, for a checkpoint
        self._sent = dict[int, Tensor]()  # by key: the worker's own value when it was sent, for compensation

    def load(self, values: list[Tensor]) -> None:
        super().load(values)
        self._outer = [value.clone() for value in values]

    async def run(self, world: World, round_: int, steps: int) -> LocalResult:
        results = []
        for number in range(steps):
            if number == self._streaming.overlap_steps:
                await self._take_all(world)
            results.append(await self._step(world, round_))
        await self._take_all(world)
        keys = self.fragments[round_ % len(self.fragments)]

        def contributions() -> dict[int, Tensor]:
            now = self._optimizer.values()
            if self._streaming.compensation is not None:
                self._sent |= {key: now[key].clone() for key in keys}
            return {key: buffers.computed(torch.sub, self._outer[key], now[key]).mul_(self._weight) for key in keys}

        return joined_result(await world.compute(copying([self._outer[key] for key in keys]), contributions), results)

    async def take(self, world: World, round_: int, values: Mapping[int, Tensor]) -> None:
        if self._keeps:
            self._kept = await world.compute(
                copying(list(values.values())), lambda: {key: value.clone() for key, value in values.items()}
            )
        else:
            await self._mix(world, values)

    async def receive_pending(self) -> None:
        self._keeps = True
        await self.take_pending()
        self._keeps = False

    async def _take_all(self, world: World) -> None:
        """Take the values that are on their way, and those received early."""
        await self.take_pending()
        kept, self._kept = self._kept, {}
        if kept:
            await self._mix(world, kept)

    async def _mix(self, world: World, values: Mapping[int, Tensor]) -> None:
        own = self._streaming.mixing if self.is_late else 0.0

        def mix() -> None:
            mine = self._optimizer.values()
            for key, received in values.items():
                value = received.to(mine[key].device)  # a checkpoint's values are in main memory
                self._outer[key] = value.clone()
                if self._streaming.compensation is None:
                    mine[key].mul_(own).add_(value, alpha=1 - own)
                else:
                    mine[key].copy_(self._compensated(mine[key], value, self._sent.pop(key).to(value.device)))
            self._learner.load(mine)

        await world.compute(copying(list(values.values())), mix)

    def _compensated(self, now: Tensor, new: Tensor, sent: Tensor) -> Tensor:
        """Return the new value, plus the compensated steps that the worker made since it sent its own (CoCoDC)."""
        streaming = self._streaming
        assert streaming.compensation is not None, "they are mixed"
        gradient = sent - now
        correction = gradient * gradient * (new - sent)
        length = float(correction.norm())
        weight = streaming.compensation * float(gradient.norm()) / length if length else 0.0
        return new - gradient - weight * correction

    async def finish(self, world: World) -> bool:
        """End with each fragment as of its last outer step: these are the same at all workers."""
        await self._take_all(world)
        await self.begin(world, self._outer)
        return True
