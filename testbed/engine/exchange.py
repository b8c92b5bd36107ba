"""What paradigms differ in: how the workers of a run make new values from what each has computed in a round.

``engine.driver`` leads a worker through its life, and asks its ``Exchange`` for what follows from the paradigm.
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

    started_s  when its local work began
    result     of its local work
    waited_s   how long servers held its new values back for others; ``None`` where no server does
    learning_rates  of a script's optimizer, as text; empty for built-in training, whose Plan has them
    """

    round: int
    started_s: float
    result: LocalResult
    waited_s: float | None = None
    learning_rates: str = ""


@dataclass(frozen=True, slots=True)
class FinalScore:
    """The round after which the final values are, and whether they have changed since that round was over."""

    round: int
    changed: bool


class Exchange(ABC):
    """One worker's side of a paradigm. The driver calls its methods in the order in which they stand here:

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
    end         the number of rounds of this run, as far as this worker knows: it begins none from this one on
    """

    evaluation: Evaluation
    workers: int
    end: float

    @abstractmethod
    async def begin(self, state: State | None, after: int) -> None:
        """Take the values with which all workers begin, or which the others have where this one joins them.

        state  what ``state`` returned when the checkpoint was made with which the run begins; ``None``: with none
        after  the round after which that was; -1: none
        """

    @abstractmethod
    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        """Return this worker's first round, when all workers begin to train.

        resume  returns when all nodes have loaded the checkpoint with which the run begins; ``None``: with none
        """

    async def ready(self, round_: int) -> None:  # noqa: B027 - optional
        """Return when it is known who takes part in ``round_``."""

    @abstractmethod
    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        """Do the local work of a round, and exchange what it has made.

        over  to be called when new values are there: at the end of this round or, where they come during the next
              one's local work, then
        """

    def score(self, round_: int) -> None:
        """Begin to score the model after ``round_``, if that is due and this worker is the one that does it."""
        self.evaluation.after_round(round_)

    async def settle(self) -> None:  # noqa: B027 - optional
        """Receive all values that are still on their way."""

    @property
    def can_keep(self) -> bool:
        """Whether a checkpoint can be made, after ``settle``: of a script only between two of its steps."""
        return True

    @abstractmethod
    def state(self) -> State:
        """Return what a checkpoint keeps, between two rounds and after ``settle``."""

    @abstractmethod
    async def finish(self, rounds: int) -> FinalScore:
        """End with the run's result, after so many rounds. Return when it is to be scored."""
