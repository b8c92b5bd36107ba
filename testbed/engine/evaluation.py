"""Evaluation: values are copied and scored outside the timed path, so that it takes no time of the training.

The score of round r decides at round r + ``every`` whether training stops. So the round at which a run stops depends
on the mathematics, not on the time that a score takes. The target is reached when two scores in a row meet it, as a
single one may be luck; ``testbed.results.summary.at_target`` finds the same round in a run's table.

If workers do not wait for each other and have servers, a global server scores the model (``global_model``), not a
worker by ``Evaluation``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from testbed.engine.checkpoint import Checkpoint
from testbed.plan.asynchronous import is_scored_at_top
from testbed.plan.model import Plan
from testbed.results.events import EVALUATING
from testbed.state import State
from testbed.target import Target
from testbed.training.learner import Learner, Score
from testbed.world import Future, World

Evaluate = Callable[[list[Tensor]], Score | None]


@dataclass(slots=True)
class _Snapshot:
    round: int
    epoch: int
    time_s: float
    score: Future[Score | None]


class Scores:
    """Scores one model after the other.

    reached_in  the round of the second score in a row that met the target; ``None`` before that
    """

    def __init__(self, world: World, evaluate: Evaluate, target: Target | None) -> None:
        self._world = world
        self._evaluate = evaluate
        self._target = target
        self._snapshot: _Snapshot | None = None
        self._snapshot_age_s = 0.0  # age of a resumed snapshot when its checkpoint was made
        self._met = False  # whether the latest score meets the target
        self.reached_in: int | None = None

    @property
    def reached(self) -> bool:
        return self.reached_in is not None

    @property
    def round(self) -> int | None:
        """The round of the model that is being scored; ``None`` if no model is."""
        return self._snapshot.round if self._snapshot is not None else None

    def take(self, round_: int, epoch: int, values: list[Tensor], time_s: float) -> None:
        """Start scoring ``values``: the model after ``round_``, in the given epoch, taken at ``time_s``."""
        assert self._snapshot is None, "the score before has not been collected"
        score = self._world.aside(lambda: self._evaluate(values))
        self._snapshot = _Snapshot(round_, epoch, time_s, score)

    async def collect(self) -> None:
        """Wait for the score in progress, if any, and record it."""
        if self._snapshot is None:
            return
        snapshot, self._snapshot = self._snapshot, None
        score = await self._world.wait(snapshot.score, EVALUATING)
        if score is None:
            return
        self._world.record(
            "evaluate",
            round=snapshot.round,
            epoch=snapshot.epoch,
            accuracy=score.accuracy,
            loss=score.loss,
            chance=score.chance,
            snapshot_t=snapshot.time_s,
        )
        met = self._target is not None and bool(self._target.is_met(getattr(score, self._target.measure)))
        if self._met and met and self.reached_in is None:
            self.reached_in = snapshot.round
        self._met = met

    def resume(self, resumed: Checkpoint | None) -> None:
        """After loading a checkpoint's state, convert the time of its snapshot to this run's clock."""
        if resumed is not None and not resumed.same_clock and self._snapshot is not None:
            self._snapshot.time_s = max(0.0, self._world.now() - self._snapshot_age_s)

    async def state(self) -> State:
        """Return the state of the target, and the score that is not collected yet, if any."""
        state: State = {"above": int(self._met)}
        if self.reached_in is not None:
            state["reached_in"] = self.reached_in
        if self._snapshot is not None:
            score = await self._world.wait(self._snapshot.score, EVALUATING)
            taken_s = self._snapshot.time_s
            state |= {"round": self._snapshot.round, "epoch": self._snapshot.epoch, "taken_s": taken_s}
            state["age_s"] = self._world.now() - taken_s
            if score is not None:
                state |= {name: value for name, value in asdict(score).items() if value is not None}
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._met = bool(state["above"])
        self.reached_in = int(state["reached_in"]) if "reached_in" in state else None
        if "round" in state:
            score: Future[Score | None] = self._world.future()
            known = {field.name: state[field.name] for field in fields(Score) if field.name in state}
            score.set_result(Score(**known) if known else None)
            epoch = int(state["epoch"])
            taken_s = float(state["taken_s"])
            self._snapshot = _Snapshot(int(state["round"]), epoch, taken_s, score)
            self._snapshot_age_s = float(state["age_s"])


class Evaluation:
    """One worker's part in evaluation. Only the first training worker evaluates; at others the methods do nothing.

    If the membership may change, ``done_by`` sets the worker that evaluates, so that another one can go on.

    active  whether this worker evaluates: it is the first, and neither a server nor a script scores the model
    """

    def __init__(self, world: World, plan: Plan, learner: Learner | None) -> None:
        """``learner``: scores its model; ``None``: the user's script scores the model and reports the score."""
        training = plan.training
        self._world = world
        self._learner = learner
        self._every = training.evaluate_every
        self._rounds = training.rounds
        self._at_top = is_scored_at_top(plan)
        self._is_first = world.node == plan.training_workers[0].name
        self._scores = Scores(world, self._evaluate, training.target)
        # in gossip: returns whether a round may already know that the target is reached
        self.decide: Callable[[int], Awaitable[bool]] | None = None

    @property
    def _model(self) -> Learner:
        assert self._learner is not None, "a script scores its model itself"
        return self._learner

    def _evaluate(self, values: list[Tensor]) -> Score | None:
        return self._model.evaluate(values)

    @property
    def active(self) -> bool:
        return self._is_first and not self._at_top and self._learner is not None

    def done_by(self, worker: str) -> None:
        """Let ``worker`` evaluate from now on. Call this only between two rounds."""
        self._is_first = worker == self._world.node

    def begin(self, rounds: int, workers: int, resumed: Checkpoint | None = None) -> None:
        """Record the start of training: ``rounds`` at most, by ``workers``.

        ``resumed``: the checkpoint that the run begins with.
        """
        self._scores.resume(resumed)
        if self._is_first:
            self._world.record("train", rounds=rounds, workers=workers, **trained_before(self._world.now(), resumed))

    async def before_push(self, round_: int) -> bool:
        """Collect the score that is due. Return whether the target has been reached, so that this round is the last."""
        if self.due(round_):
            await self._scores.collect()
        return self._scores.reached

    def needs_model(self, round_: int) -> bool:
        """Return whether this worker needs the whole model after ``round_``. Call this before the push of the round."""
        return self.active and (self.due(round_) or self._scores.reached or round_ == self._rounds - 1)

    def due(self, round_: int) -> bool:
        """Return whether this worker scores the model after ``round_``."""
        return self.active and round_ % self._every == self._every - 1

    def after_round(self, round_: int) -> None:
        """Every ``every`` rounds, copy the new values and start scoring them."""
        if self.due(round_):
            self._take(round_)

    async def decided(self, round_: int) -> bool:
        """Return whether this worker evaluates and ``decide`` says in ``round_`` that the target is reached."""
        return self.active and self.decide is not None and await self.decide(round_)

    def reached_by(self, round_: int) -> bool:
        """Return whether the scores up to ``round_``, which must all be collected, have reached the target."""
        reached_in = self._scores.reached_in
        return reached_in is not None and reached_in <= round_

    def take(self, round_: int, values: list[Tensor], time_s: float) -> None:
        """Start scoring values that are not the learner's own. The previous score must have been collected."""
        self._scores.take(round_, self._model.epoch, values, time_s)

    async def score(self, round_: int, values: list[Tensor], time_s: float) -> None:
        """Score values that are not the learner's own, and return when their score is recorded."""
        self.take(round_, values, time_s)
        await self._scores.collect()

    async def finish(self, round_: int, *, changed: bool = False) -> None:
        """Score the final values. ``changed``: whether they changed after the end of the last round, ``round_``."""
        if not self.active:
            return
        if changed or self._scores.round != round_:
            await self._scores.collect()
            self._take(round_)
        await self._scores.collect()

    async def state(self) -> State:
        """Return the state for a checkpoint: the scores at the worker that evaluates, nothing at others."""
        return await self._scores.state() if self._is_first else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if "above" in state:
            self._is_first = True
            self._scores.load_state(state)

    def _take(self, round_: int) -> None:
        self.take(round_, self._model.values(), self._world.now())


def trained_before(now_s: float, resumed: Checkpoint | None) -> dict[str, Any]:
    """Return the fields of the event ``train`` at ``now_s`` for a resumed run; none for any other run.

    In virtual time the clock goes on after a checkpoint, so training takes as long as in an uninterrupted run.
    """
    if resumed is None:
        return {}
    since_s = resumed.instant.training_since_s  # 0 in real time
    goes_on = resumed.same_clock and since_s > 0
    trained_s = round(now_s, 6) - round(since_s, 6) if goes_on else resumed.members.trained_s  # rounded as recorded
    return {"resumed_round": resumed.round, "trained_s": round(trained_s, 6)}
