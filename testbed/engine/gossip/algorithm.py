"""The interface of gossip algorithms, through which ``gossip.exchange`` runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from testbed.engine.evaluation import Evaluation
from testbed.engine.exchange import RoundDone
from testbed.engine.gossip.mean import MeanModel
from testbed.engine.gossip.model import GossipMail, OwnModel
from testbed.engine.peers import Agreed
from testbed.state import Remembering, State
from testbed.world import World


@dataclass(frozen=True, slots=True)
class GossipParts:
    """The parts that an algorithm uses: mail from other workers, its own model, the mean model and its evaluation."""

    mail: GossipMail
    model: OwnModel
    mean: MeanModel
    evaluation: Evaluation


class GossipAlgorithm(Remembering, ABC):
    """One worker's side of an algorithm by which workers mix their models with neighbours."""

    def __init__(self, world: World, parts: GossipParts) -> None:
        self._world = world
        self._mail = parts.mail
        self._model = parts.model
        self._mean = parts.mean
        self._evaluation = parts.evaluation
        self._peers = parts.mail.peers

    @property
    @abstractmethod
    def end(self) -> float:
        """The number of rounds of this worker, as far as it knows."""

    @property
    @abstractmethod
    def value(self) -> Tensor:
        """This worker's estimate of the model, flat."""

    @property
    @abstractmethod
    def neighbours(self) -> list[str]:
        """The workers whose models this one mixes with its own."""

    @abstractmethod
    def start(self, first_round: int) -> None:
        """Note that this worker's training begins with ``first_round``."""

    async def ready(self, round_: int) -> None:
        """Wait until it is known with which workers this one mixes in ``round_``."""

    @abstractmethod
    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        """Do a round, like ``Exchange.run``."""

    @abstractmethod
    def score(self, round_: int) -> None:
        """Have the mean of all models scored, if that is due after ``round_``."""

    @abstractmethod
    def final_round(self, rounds: int) -> int:
        """Return the last round of all workers together. ``rounds``: how many rounds this worker has made."""

    @abstractmethod
    def agree(self, agreed: Agreed) -> None:
        """Mix with the workers that have agreed to take part."""

    @abstractmethod
    def give(self) -> State:
        """Return the state that a joining worker takes over."""

    @abstractmethod
    def take(self, state: State) -> None:
        """Take over the state that another worker's ``give`` returned."""
