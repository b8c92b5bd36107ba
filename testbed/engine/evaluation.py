"""Accuracy beside the training, not inside its time: values are copied, and scored outside the timed path.

The score of round r decides at round r + ``every`` whether training stops, so that the round at which a run stops
depends on the mathematics and not on how fast a score was computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.training.learner import Learner, Score, State
from testbed.world import Future, World


@dataclass(slots=True)
class _Snapshot:
    round: int
    epoch: int
    time_s: float
    score: Future[Score | None]


class Evaluation:
    """Kept by one worker: the first one that trains, in rank order."""

    def __init__(self, world: World, learner: Learner, every: int, target_accuracy: float | None) -> None:
        self._world, self._learner, self._every, self._target = world, learner, every, target_accuracy
        self._snapshot: _Snapshot | None = None
        self._reached = False

    async def before_push(self, round_: int) -> bool:
        """Collects the score that is due. True when the target has been reached, so this round is the last."""
        if round_ % self._every == self._every - 1:
            await self._collect()
        return self._reached

    def after_round(self, round_: int) -> None:
        """Every ``every`` rounds, takes a copy of the new values and has it scored."""
        if round_ % self._every == self._every - 1:
            self._take(round_)

    async def finish(self, round_: int) -> None:
        """Scores the final values of a run whose last round was ``round_``."""
        if self._snapshot is None or self._snapshot.round != round_:
            await self._collect()
            self._take(round_)
        await self._collect()

    async def state(self) -> State:
        """What a checkpoint keeps: whether the target has been reached, and a score that is not due yet."""
        state: State = {"reached": int(self._reached)}
        if self._snapshot is not None:
            score = await self._world.wait(self._snapshot.score, "evaluation")
            state["round"] = self._snapshot.round
            if score is not None:
                state |= {"accuracy": score.accuracy, "loss": score.loss}
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``. The snapshot counts as taken when the resumed run began."""
        self._reached = bool(state["reached"])
        if "round" in state:
            score: Future[Score | None] = self._world.future()
            score.set_result(Score(state["accuracy"], state["loss"]) if "accuracy" in state else None)
            self._snapshot = _Snapshot(int(state["round"]), self._learner.epoch, self._world.now(), score)

    def _take(self, round_: int) -> None:
        values = self._learner.values()
        score = self._world.aside(lambda: self._learner.evaluate(values))
        self._snapshot = _Snapshot(round_, self._learner.epoch, self._world.now(), score)

    async def _collect(self) -> None:
        if self._snapshot is None:
            return
        snapshot, self._snapshot = self._snapshot, None
        score = await self._world.wait(snapshot.score, "evaluation")
        if score is None:
            return
        self._world.record(
            "evaluate", round=snapshot.round, epoch=snapshot.epoch, accuracy=score.accuracy, loss=score.loss,
            snapshot_t=snapshot.time_s,
        )  # fmt: skip
        self._reached = self._reached or (self._target is not None and score.accuracy >= self._target)
