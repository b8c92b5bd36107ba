"""A paradigm from outside: workers average their models once every few rounds."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from testbed.axes import option
from testbed.paradigms import OwnParadigm, Workers


@dataclass(frozen=True)
class Averaging(OwnParadigm):
    """All workers average their models, all to all."""

    every: int = option(4, "rounds from one average to the next", min=1)

    def mixes(self, round_: int) -> bool:
        return (round_ + 1) % self.every == 0

    async def mix(self, round_: int, model: Tensor, workers: Workers) -> Tensor:
        models = await workers.all_gather(model)
        return sum(models[1:], models[0]) / workers.size
