"""Accuracy beside the training, not inside its time: values are copied, and scored outside the timed path.

The score of round r decides at round r + ``every`` whether training stops, so that the round at which a run stops
depends on the mathematics and not on how fast a score was computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from testbed.plan.model import Plan
from testbed.training.learner import Learner, Score, State
from testbed.world import Future, World


@dataclass(slots=True)
class _Snapshot:
    round: int
    epoch: int
    time_s: float
    score: Future[Score | None]


class Evaluation:
    """One worker evaluates, the first training worker in rank order; at the others every method does nothing."""

    def __init__(self, world: World, plan: Plan, learner: Learner) -> None:
        training = plan.training
        self._world, self._learner = world, learner
        self._every, self._target, self._rounds = training.evaluate_every, training.target_accuracy, training.rounds
        self._workers = plan.training_workers
        self.active = world.node == self._workers[0].name
        self._snapshot: _Snapshot | None = None
        self._reached = False

    def members(self, names: Sequence[str]) -> None:
        """Let the first of these workers evaluate."""
        self.active = self._world.node == names[0]

    def begin(self, rounds: int, workers: int, absent: Collection[str] = ()) -> None:
        """Record the start of training: ``rounds`` at most, by ``workers``; the first that is not ``absent`` does."""
        present = (worker.name for worker in self._workers if worker.name not in absent)
        if self.active or self._world.node == next(present, ""):
            self._world.record("train", rounds=rounds, workers=workers)

    async def before_push(self, round_: int) -> bool:
        """Collect the score that is due. Return whether the target has been reached, so that this round is the last."""
        if self._due(round_):
            await self._collect()
        return self._reached

    def needs_model(self, round_: int) -> bool:
        """Return whether this worker is to have the whole model after ``round_``; asked before its push."""
        return self.active and (self._due(round_) or self._reached or round_ == self._rounds - 1)

    def after_round(self, round_: int) -> None:
        """Copy the new values and start scoring them, every ``every`` rounds."""
        if self._due(round_):
            self._take(round_)

    async def finish(self, round_: int) -> None:
        """Score the final values of a run whose last round was ``round_``."""
        if not self.active:
            return
        if self._snapshot is None or self._snapshot.round != round_:
            await self._collect()
            self._take(round_)
        await self._collect()

    async def state(self) -> State:
        """Return what a checkpoint keeps: whether the target has been reached, and a score that is not due yet."""
        if not self.active:
            return {}
        state: State = {"reached": int(self._reached)}
        if self._snapshot is not None:
            score = await self._world.wait(self._snapshot.score, "the evaluation to end")
            state |= {"round": self._snapshot.round, "epoch": self._snapshot.epoch}
            if score is not None:
                state |= {name: value for name, value in asdict(score).items() if value is not None}
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``. The snapshot counts as taken when the resumed run began."""
        if not self.active or not state:
            return
        self._reached = bool(state["reached"])
        if "round" in state:
            score: Future[Score | None] = self._world.future()
            known = {field.name: state[field.name] for field in fields(Score) if field.name in state}
            score.set_result(Score(**known) if known else None)
            epoch = int(state.get("epoch", 0))  # earlier releases did not keep it
            self._snapshot = _Snapshot(int(state["round"]), epoch, self._world.now(), score)

    def _due(self, round_: int) -> bool:
        return self.active and round_ % self._every == self._every - 1

    def _take(self, round_: int) -> None:
        values = self._learner.values()
        score = self._world.aside(lambda: self._learner.evaluate(values))
        self._snapshot = _Snapshot(round_, self._learner.epoch, self._world.now(), score)

    async def _collect(self) -> None:
        if self._snapshot is None:
            return
        snapshot, self._snapshot = self._snapshot, None
        score = await self._world.wait(snapshot.score, "the evaluation to end")
        if score is None:
            return
        self._world.record(
            "evaluate", round=snapshot.round, epoch=snapshot.epoch, accuracy=score.accuracy, loss=score.loss,
            chance=score.chance, snapshot_t=snapshot.time_s,
        )  # fmt: skip
        self._reached = self._reached or (self._target is not None and score.accuracy >= self._target)
