"""AD-PSGD (Lian et al., ICML 2018): a worker averages with one neighbour while it computes, and waits for no step.

An active worker sends its model (``offer``) to a passive one, which answers with its own (``answer``) and moves half
way towards the offer; the active one moves half way towards the answer. The run ends when all workers together have
made as many steps as were asked for: each reports its steps to the first worker (``step``), which counts them and tells
all others (``stop``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from testbed.engine.assigned_steps import LocalStepCounts
from testbed.engine.evaluation import Evaluation
from testbed.engine.gossip.model import GossipMail, Keep, OwnModel
from testbed.messages import Message
from testbed.plan.model import Plan
from testbed.policy.gossip.mixing import Partners
from testbed.state import State
from testbed.training.seeds import seed_for
from testbed.world import Future, World


class AsynchronousGossip:
    """One worker; ``Partners`` explains why the average is kept and no circle of waits can form."""

    def __init__(
        self, world: World, mail: GossipMail, model: OwnModel, ranks: Sequence[str],
        partners: Callable[[int], Partners], plan: Plan,
    ) -> None:  # fmt: skip
        """``partners``: of each round."""
        self._world, self._mail, self._model, self._partners = world, mail, model, partners
        self._ranks, self._rank, self._seed = ranks, ranks.index(world.node), plan.seed
        self._counts = LocalStepCounts(plan, world.node, ranks)
        self._missing_rounds = plan.training.rounds * len(ranks)  # of all workers together, counted at the first
        self._stopped = self._stepping = False
        self._offers: list[Message] = []
        self._answer: Future[Message] = world.future()
        for what, handler in (("offer", self._on_offer), ("answer", self._on_answer), ("stop", self._on_stop)):
            mail.on(what, handler)
        if self._rank == 0:
            mail.on("step", lambda message: self._on_step())

    @property
    def value(self) -> Tensor:
        """This worker's model."""
        return self._model.flat

    def state(self) -> State:
        """Return what a checkpoint keeps: all workers have made the same number of steps, and no exchange is open."""
        return self._model.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``."""
        self._model.load_state(state)

    async def run(self, evaluation: Evaluation, first_round: int, keep: Keep) -> int:
        """Step until the end is declared. Return the number of steps of this worker."""
        step = first_round
        self._missing_rounds -= first_round * len(self._ranks)
        while not self._stopped:
            started_s = self._world.now()
            asks = self._partners(step).asks
            exchange = self._world.spawn(self._exchange(step), "an exchange") if asks else None
            result = await self._model.work(step, self._counts.of(step))
            if exchange is not None:
                await self._world.wait(exchange, f"the exchange of step {step}")
            self._stepping = True  # a thread may be changing the model: offers wait until it has
            await self._model.step(step, result)
            self._stepping = False
            self._answer_offers()
            self._model.end_round(step, started_s, result)
            await self._after_step(step, evaluation)
            if not self._stopped:
                await keep(step)
            step += 1
        return step

    async def _after_step(self, step: int, evaluation: Evaluation) -> None:
        if self._rank == 0:
            self._on_step()
        else:
            await self._mail.send(self._ranks[0], "step", step)
        if await evaluation.before_push(step) and not self._stopped:
            self._stop_all()
        evaluation.after_round(step)

    async def _exchange(self, step: int) -> None:
        partner = self._ranks[self._partners(step).partner(seed_for(self._seed, "partner", self._rank, step))]
        mine = self._model.flat
        self._answer = self._world.future()
        await self._mail.send(partner, "offer", step, mine)
        message = await self._world.wait(self._answer, f"the answer of {partner} in step {step}")
        self._model.set(self._model.flat + (message.parts[0] - mine) / 2)

    def _on_offer(self, message: Message) -> None:
        self._offers.append(message)
        if not self._stepping:
            self._answer_offers()

    def _answer_offers(self) -> None:
        """Answer with the model as it is, then move half way to the offer; without a wait between the two."""
        offers, self._offers = self._offers, []
        for offer in offers:
            mine = self._model.flat
            self._world.spawn(self._mail.send(offer.sender, "answer", offer.round, mine), "an answer")
            self._model.set(mine + (offer.parts[0] - mine) / 2)

    def _on_answer(self, message: Message) -> None:
        self._answer.set_result(message)

    def _on_step(self) -> None:
        self._missing_rounds -= 1
        if self._missing_rounds == 0 and not self._stopped:
            self._stop_all()

    def _stop_all(self) -> None:
        self._stopped = True
        for other in self._ranks:
            if other != self._world.node:
                self._world.spawn(self._mail.send(other, "stop", 0), "declare the end")

    def _on_stop(self, message: Message) -> None:
        self._stopped = True
