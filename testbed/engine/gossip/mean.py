"""The mean of all workers' models is scored while they train, outside the timed path like every evaluation.

No worker has it. So all give their models to the one that evaluates, past the modelled network (``World.send_aside``),
and it scores their mean. How far they are from it is the event ``consensus``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, sqrt

import torch
from torch import Tensor

from testbed.engine.evaluation import Evaluation
from testbed.engine.gossip.model import GossipMail
from testbed.results.events import EVALUATING
from testbed.world import Future, World


class MeanModel:
    """Computes and scores the mean model at the worker that evaluates; sends models to it at all others.

    on_reached  called when a mean is to be scored after the target has been reached
    """

    def __init__(self, world: World, mail: GossipMail, sizes: Sequence[int], evaluation: Evaluation) -> None:
        self._world = world
        self._mail = mail
        self._sizes = sizes
        self._evaluation = evaluation
        self.on_reached: Callable[[], object] = lambda: None
        self._models: dict[int, dict[str, Tensor]] = {}  # by round and worker, of rounds that are not scored yet
        self._waiting: dict[int, tuple[Mapping[str, int | None], Future[None]]] = {}  # by round: the awaited workers
        self._scorings: dict[int, Future[None]] = {}  # by round; each scoring ends after the one before
        mail.on("snapshot", lambda message: self._take(message.sender, message.round, message.parts[0]))
        mail.peers.on_change.append(lambda _: self._check())

    async def give(self, to: str, round_: int, flat: Tensor) -> None:
        """Send this worker's model after ``round_`` to the worker ``to``."""
        if to == self._world.node:
            self._take(to, round_, flat)
        else:
            await self._mail.send_aside(to, "snapshot", round_, flat)

    def score(self, round_: int, joined_in: Mapping[str, int | None]) -> None:
        """Score the mean of the models that workers have after ``round_``, once all have come.

        ``joined_in``: the epochs in which the processes of these workers joined.
        """
        waiting: Future[None] = self._world.future()
        self._waiting[round_] = joined_in, waiting
        self._scorings = {earlier: scoring for earlier, scoring in self._scorings.items() if not scoring.done()}
        before = list(self._scorings.values())[-1:]
        self._scorings[round_] = self._world.spawn(self._score(round_, before, waiting), "score the mean model")
        self._check()

    async def settled(self, round_: float = inf) -> None:
        """Wait until the mean models of all rounds up to ``round_`` have been scored."""
        for scoring in [scoring for scored, scoring in self._scorings.items() if scored <= round_][-1:]:
            await self._world.wait(scoring, EVALUATING)

    def _check(self) -> None:
        """End the wait for rounds whose models have all arrived, except those of lost or replaced processes."""
        for round_, (expected, waiting) in self._waiting.items():
            came = self._models.get(round_, {})
            lives = {
                name
                for name, joined in expected.items()
                if joined is not None and self._mail.peers.joined_in(name) == joined
            }
            if not waiting.done() and lives <= came.keys():
                waiting.set_result(None)

    def _take(self, worker: str, round_: int, flat: Tensor) -> None:
        self._models.setdefault(round_, {})[worker] = flat
        self._check()

    async def _score(self, round_: int, before: Sequence[Future[None]], waiting: Future[None]) -> None:
        for scoring in before:
            await self._world.wait(scoring, EVALUATING)
        if self._evaluation.reached_by(round_ - 1):
            self.on_reached()
        await self._world.wait(waiting, f"all models of round {round_}, to score their mean")
        time_s = self._world.now()  # when the slowest worker's model arrived: there was no mean before
        names, _ = self._waiting.pop(round_)
        came = self._models[round_]
        self._models = {later: models for later, models in self._models.items() if later > round_}
        models = [came[name] for name in names if name in came]
        mean, distance = await self._world.wait(self._world.aside(lambda: mean_of(models)), EVALUATING)
        self._world.record("consensus", round=round_, distance=distance)
        await self._evaluation.score(round_, list(torch.split(mean, list(self._sizes))), time_s)


def mean_of(models: Sequence[Tensor]) -> tuple[Tensor, float | None]:
    """Return the mean of flat models, and their root-mean-square distance from it; ``None`` without numbers."""
    total = models[0].clone()
    for model in models[1:]:
        total += model
    mean = total / len(models)
    if mean.is_meta:
        return mean, None
    return mean, sqrt(sum(float((model - mean).double().square().sum()) for model in models) / len(models))
