"""One worker's own model with its optimizer, and the gossip messages that bring models from neighbours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.inbox import Handler, Inbox
from testbed.engine.local_work import LocalResult, LocalWork, optimizer_work
from testbed.engine.peers import EpochMail, Peers
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.state import Remembering
from testbed.training.learner import Learner
from testbed.training.optimizers import ModelOptimizer
from testbed.world import Future, World

_KEYS = {"model": 0, "offer": 0, "answer": 1}
"""The algorithm's messages have a key from 0 on, as everywhere when tensors of training travel."""


class OwnModel(Remembering):
    """One worker's model; ``flat`` is the model as one tensor. Mixing sets it, and a step changes it.

    A step applies the optimizer to the result of ``work``: a gradient, or the change by local steps.

    ``factor``: multiplies the gradient or change: the number of workers if gradients count as a sum, or the worker's
    weight in a mean relative to the others.
    """

    remembers = ("_optimizer", "_work")

    def __init__(
        self, world: World, plan: Plan, learner: Learner, work: LocalWork, values: list[Tensor], factor: float
    ) -> None:
        optimizer = sync_setup.stepped_with(plan)
        self._world = world
        self._learner = learner
        self._work = work
        self._factor = factor
        self._optimizer = ModelOptimizer(optimizer.kind, optimizer.options, values, learner.shapes)

    def begin_at(self, steps: int) -> None:
        """Take the place of a worker that has made ``steps`` steps (``LocalWork.begin_at``)."""
        self._work.begin_at(steps)

    @property
    def flat(self) -> Tensor:
        """Return a copy of the model as one tensor."""
        return torch.cat(self._optimizer.values())

    def set(self, flat: Tensor) -> None:
        """Replace the model; the optimizer keeps its momentum and moments."""
        self._optimizer.load(torch.split(flat, list(self._learner.sizes)))

    async def work(self, round_: int, steps: int, at: Tensor | None = None) -> LocalResult:
        """Do the local work of a round, from the current model or from the model ``at``."""
        values = self._optimizer.values() if at is None else torch.split(at, list(self._learner.sizes))
        self._work.load(list(values))
        return await self._work.run(self._world, round_, steps)

    async def step(self, round_: int, result: LocalResult) -> None:
        """Apply the optimizer to the gradient, or to the change that local steps have made."""
        gradients = [gradient * self._factor for gradient in result.contributions.values()]
        work = optimizer_work(self._optimizer.keys, round_)
        await self._world.compute(work, lambda: self._optimizer.step(gradients, self._factor))

    def show(self, flat: Tensor) -> None:
        """Load the model after a round into the learner."""
        self._learner.load(list(torch.split(flat, list(self._learner.sizes))))


class GossipMail:
    """Hands a worker's gossip messages to handlers by their sort (``what``). Handlers return at once."""

    def __init__(self, world: World, inbox: Inbox, peers: Peers) -> None:
        self._world = world
        self.peers = peers
        self._handlers: dict[str, Handler] = {}
        self._models: dict[tuple[int, str], Future[Message | None]] = {}
        EpochMail(inbox, peers, together=False).on(MessageKind.GOSSIP, self._on_message)
        peers.on_change.append(lambda _: self._drop_lost())
        self.on("model", lambda message: self._model(message.round, message.sender).set_result(message))

    def on(self, what: str, handler: Handler) -> None:
        """Hand messages of sort ``what`` to ``handler``. Call it before training, when no message has been sent."""
        self._handlers[what] = handler

    async def send(self, to: str, what: str, round_: int, *parts: Tensor, **meta: Any) -> None:
        meta = {"what": what, **meta, **self.peers.stamp}
        await self._world.send(to, Message(MessageKind.GOSSIP, _KEYS[what], round_, meta, parts))

    async def send_aside(self, to: str, what: str, round_: int, *parts: Tensor, **meta: Any) -> None:
        """Send a message that is not part of the algorithm, but of counting or evaluation (``World.send_aside``)."""
        meta = {"what": what, **meta, **self.peers.stamp}
        await self._world.send_aside(to, Message(MessageKind.GOSSIP, -1, round_, meta, parts))

    async def model(self, round_: int, sender: str) -> Message | None:
        """Wait for a neighbour's model of this round; ``None``: the neighbour was lost before it sent the model."""
        future = self._model(round_, sender)
        message = await self._world.wait(future, f"the model of round {round_} from {sender}")
        self._models.pop((round_, sender), None)
        return message

    def _on_message(self, message: Message) -> None:
        self._handlers[message.meta["what"]](message)

    def _drop_lost(self) -> None:
        for place in [place for place in self._models if self.peers.joined_in(place[1]) is None]:
            future = self._models.pop(place)
            if not future.done():
                future.set_result(None)

    def _model(self, round_: int, sender: str) -> Future[Message | None]:
        if (round_, sender) not in self._models:
            self._models[round_, sender] = self._world.future()
        return self._models[round_, sender]
