"""Runs a training worker from start to end, in the same way in every paradigm; only its ``Exchange`` differs.

1. It takes first values: common ones, the others' if it joins late, or those of the checkpoint in a resumed run.
2. It waits until all workers begin.
3. Round after round it computes and exchanges. Between two rounds it may leave, or write a checkpoint.
4. It ends with the result, which one worker scores.
"""

from __future__ import annotations

from testbed.engine.checkpoint import Checkpointer, CheckpointFiles
from testbed.engine.departure import Departure
from testbed.engine.exchange import Exchange, RoundDone
from testbed.engine.guard import Guarded
from testbed.engine.session import Session
from testbed.plan.model import NodePlan, Plan
from testbed.state import State, Stateful, below, under


class RoundDriver:
    """Runs one worker's training. Create it after the worker's session has joined.

    leaves  whether the worker has ended its part on purpose, before the run's end
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        node: NodePlan,
        learner: Stateful,
        exchange: Exchange,
        files: CheckpointFiles | None,
        departure: Departure | None = None,
    ) -> None:
        """``learner`` holds the part of this worker's state that ``exchange`` does not hold.

        ``departure`` decides when this worker leaves, in a paradigm whose workers may leave.
        """
        self._world = session.world
        self._membership = session.membership
        self._plan = plan
        self._node = node
        self._learner = learner
        self._exchange = exchange
        self._evaluation = exchange.evaluation
        self._departure = departure
        self._checkpointer = Checkpointer(session.world, session.membership, plan, files)
        self.leaves = False

    async def run(self) -> int:
        """Train to the end. Return the number of rounds done; 0 if the worker does not train."""
        await self._begin()
        if not self._node.trains:
            return 0
        exchange = self._exchange
        checkpointer = self._checkpointer
        first_round = await exchange.meet(checkpointer.resume if checkpointer.resumed else None)
        round_ = max(checkpointer.first_round, first_round)
        if exchange.end > 0:
            self._evaluation.begin(self._plan.training.rounds, exchange.workers, checkpointer.checkpoint)
        if self._membership.joined_late and round_ < exchange.end:
            await self._keep(round_ - 1)  # the others meet for a checkpoint after the previous round
        while await self._begins(round_):
            await exchange.run(round_, self._over)
            if round_ < exchange.end:  # else the previous round's late values have ended the run
                round_ += 1
                await self._between(round_)
        final = await exchange.finish(round_)
        await self._evaluation.finish(final.round, changed=final.changed)
        return round_

    async def _begins(self, round_: int) -> bool:
        """Wait until ``round_`` may begin. Return whether this worker does the round."""
        if self.leaves:
            return False
        await self._exchange.ready(round_)
        if isinstance(self._learner, Guarded):
            self._learner.round = round_
        return round_ < self._exchange.end

    async def _between(self, round_: int) -> None:
        """If the run goes on, leave before ``round_`` or write a checkpoint, whichever is due."""
        if round_ >= self._exchange.end:
            return
        if self._departure is not None and self._departure.due(round_ - 1):
            await self._exchange.settle()
            self.leaves = round_ < self._exchange.end
        else:
            await self._keep(round_ - 1)

    async def _begin(self) -> None:
        if not self._checkpointer.resumed:
            await self._exchange.begin(None, -1)
            return
        state = self._checkpointer.state
        if self._node.trains:
            self._learner.load_state(below("learner", state))
            self._evaluation.load_state(below("evaluation", state))
        await self._exchange.begin(below("exchange", state), self._checkpointer.first_round - 1)

    def _over(self, done: RoundDone) -> None:
        result = done.result
        waited = {} if done.waited_s is None else {"waited_s": round(done.waited_s, 6)}
        rates = {"learning_rates": done.learning_rates} if done.learning_rates else {}
        self._world.record(
            "round",
            t0=done.started_s,
            round=done.round,
            loss=result.loss,
            samples=result.samples,
            steps=result.steps,
            **waited,
            **rates,
        )
        self._exchange.score(done.round)

    async def _keep(self, round_: int) -> None:
        """Write a checkpoint after ``round_``, if one is due and no late values end the run."""
        if not self._checkpointer.due(round_):
            return
        await self._exchange.settle()
        if round_ + 1 < self._exchange.end and self._exchange.can_keep:
            await self._checkpointer.save(round_, self._state)

    async def _state(self) -> State:
        state = under("learner", self._learner.state()) | under("exchange", self._exchange.state())
        return state | under("evaluation", await self._evaluation.state())
