"""The part of a worker that depends on the paradigm: how workers make new values from their results of a round.

``engine.driver`` runs a worker from start to end, and calls its ``Exchange`` for all that depends on the paradigm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from testbed.engine.evaluation import Evaluation
from testbed.engine.local_work import LocalResult
from testbed.state import State


@dataclass(frozen=True, slots=True)
class RoundDone:
    """A round that is over at this worker.

    started_s       when its local work began
    result          the result of its local work
    waited_s        seconds for which servers held its new values back for other members; ``None`` without servers
    learning_rates  those of a script's optimizer, as text; empty for built-in training, whose Plan has them
    """

    round: int
    started_s: float
    result: LocalResult
    waited_s: float | None = None
    learning_rates: str = ""


@dataclass(frozen=True, slots=True)
class FinalScore:
    """The last round before the final values, and whether the values have changed since the end of that round."""

    round: int
    changed: bool


class Exchange(ABC):
    """One worker's side of a paradigm. The driver calls the methods in this order:

        await exchange.begin(None, after=-1)
        round_ = await exchange.meet(None)
        await exchange.ready(round_)
        while round_ < exchange.end:
            await exchange.run(round_, record)
            round_ += 1
            await exchange.ready(round_)
        await exchange.finish(round_)

    evaluation  scores the model at one of the workers
    workers     the number of workers that begin to train together
    end         the number of rounds of this run, as far as this worker knows; it does not begin round ``end``
    """

    evaluation: Evaluation
    workers: int
    end: float

    @abstractmethod
    async def begin(self, state: State | None, after: int) -> None:
        """Take first values: those with which all workers begin or, if this worker joins late, those of the others.

        state  the state that ``state`` returned for the checkpoint from which the run resumes; ``None``: no checkpoint
        after  the last round before that checkpoint; -1: no checkpoint
        """

    @abstractmethod
    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        """Wait until all workers begin to train; return this worker's first round.

        resume  waits until all nodes have loaded the checkpoint from which the run resumes; ``None``: no checkpoint
        """

    async def ready(self, round_: int) -> None:  # noqa: B027 - optional
        """Return when this worker knows which nodes take part in ``round_``."""

    @abstractmethod
    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        """Do the local work of a round, and exchange its results.

        over  must be called when the new values are there: at the end of this round, or during the next round's local
              work if the values come that late
        """

    def score(self, round_: int) -> None:
        """Begin to score the model after ``round_``, if a score is due and this worker evaluates."""
        self.evaluation.after_round(round_)

    async def settle(self) -> None:  # noqa: B027 - optional
        """Receive all values that are still on their way."""

    @property
    def can_keep(self) -> bool:
        """Whether a checkpoint can be made now, after ``settle``; for a script only between two of its steps."""
        return True

    @abstractmethod
    def state(self) -> State:
        """Return the state for a checkpoint; called between two rounds, after ``settle``."""

    @abstractmethod
    async def finish(self, rounds: int) -> FinalScore:
        """End training after ``rounds`` rounds, with the run's result. Return the round for the final score."""
