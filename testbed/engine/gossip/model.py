"""One worker's own model: its values, its optimizer, and what it records about them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from testbed.engine.local_work import one_step
from testbed.plan.model import Plan
from testbed.training.learner import Learner, StepResult
from testbed.training.optimizers import ModelOptimizer
from testbed.training.seeds import torch_stream
from testbed.world import Work, World


class OwnModel:
    """``flat`` is the model as one tensor; mixing sets it, a step changes it.

    ``factor``: a gradient is multiplied by it (the number of workers, where gradients are to count as a sum).
    """

    def __init__(self, world: World, plan: Plan, learner: Learner, values: list[Tensor], factor: float) -> None:
        optimizer = plan.technique.optimizer
        self._world, self._learner, self._factor = world, learner, factor
        self._optimizer = ModelOptimizer(optimizer.kind, optimizer.options, values)
        self._sketch = Sketch(sum(learner.sizes), plan.seed)
        self._every = plan.training.evaluate_every

    @property
    def flat(self) -> Tensor:
        """Return a copy of the model as one tensor."""
        return torch.cat(self._optimizer.values())

    def set(self, flat: Tensor) -> None:
        """Replace the model; the optimizer keeps its momentum and moments."""
        self._optimizer.load(torch.split(flat, list(self._learner.sizes)))

    async def gradient(self, round_: int, at: Tensor | None = None) -> StepResult:
        """Compute a training step's gradient, at the current model or at another."""
        values = self._optimizer.values() if at is None else torch.split(at, list(self._learner.sizes))
        self._learner.load(list(values))
        return await one_step(self._learner, self._world, round_, round_)

    async def step(self, round_: int, result: StepResult) -> None:
        """Apply the optimizer to a gradient."""
        gradients = [gradient * self._factor for gradient in result.gradients]
        # Adam, the largest, reads and writes gradient, value and two moments
        work = Work("optimizer", round_, size_bytes=4 * sum(gradient.nbytes for gradient in gradients))
        await self._world.compute(work, lambda: self._optimizer.step(gradients))

    def end_round(self, round_: int, started_s: float, result: StepResult, at: Tensor | None = None) -> None:
        """Record the round and, as often as the model is evaluated, its sketch."""
        flat = self.flat if at is None else at
        self._learner.load(list(torch.split(flat, list(self._learner.sizes))))
        self._world.record("round", t0=started_s, round=round_, loss=result.loss, samples=result.samples)
        if round_ % self._every == self._every - 1:
            self._world.record("gossip", round=round_, sketch=self._sketch(flat))


WIDTH = 256


class Sketch:
    """The same signs for all workers of a run: they come from the run's seed."""

    def __init__(self, elements: int, seed: int) -> None:
        bits = torch.randint(0, 2, (elements,), dtype=torch.int8, generator=torch_stream(seed, "sketch"))
        self._signs = bits * 2 - 1

    def __call__(self, flat: Tensor) -> list[float]:
        """``WIDTH`` numbers of a flat model; none of a model without numbers."""
        if flat.is_meta:
            return []
        padded = functional.pad(flat * self._signs, (0, -flat.numel() % WIDTH))
        return [float(f"{value:.6g}") for value in padded.view(-1, WIDTH).sum(dim=0).tolist()]
