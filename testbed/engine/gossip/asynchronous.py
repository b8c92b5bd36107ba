"""AD-PSGD (Lian et al., ICML 2018): a worker averages with one neighbour while it computes, and waits for no step.

An active worker sends its model (``offer``) to a passive one, which answers with its own (``answer``) and moves half
way towards the offer; the active one moves half way towards the answer. The run ends when all workers together have
made as many steps as were asked for: each reports its steps to the first worker (``step``), which counts them and tells
all others (``stop``). As often as all have made so many steps on the mean, it asks all for their models (``ask``), and
scores the mean of them; that belongs neither to the algorithm nor to its time, and goes aside.

A worker that is lost is no longer asked, and its answer is not waited for; the first of those who are left counts,
after all have reported to it how many steps they have made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.assigned_steps import LocalStepCounts
from testbed.engine.exchange import RoundDone
from testbed.engine.gossip.algorithm import GossipAlgorithm, GossipParts
from testbed.engine.peers import Agreed
from testbed.messages import Message
from testbed.plan.model import Plan
from testbed.policy.gossip.graphs import Graph
from testbed.policy.gossip.mixing import Partners
from testbed.state import State, below, under
from testbed.training.seeds import seed_for
from testbed.world import Future, World


class AsynchronousGossip(GossipAlgorithm):
    """One worker; ``Partners`` explains why the average is kept and no circle of waits can form.

    graphs_of  returns the neighbours of the workers that take part: in rounds inside data centres, and in the others
    """

    def __init__(
        self,
        world: World,
        parts: GossipParts,
        plan: Plan,
        graphs_of: Callable[[Sequence[str]], tuple[Graph, Graph]],
    ) -> None:
        super().__init__(world, parts)
        self._graphs_of, self._lan_rounds = graphs_of, sync_setup.lan_rounds(plan)
        self._steps, self._seed = plan.training.rounds, plan.seed  # steps of each worker, on average
        self._every = plan.training.evaluate_every  # likewise
        self._counts = LocalStepCounts(plan, world.node, self._peers.names)
        self._made: dict[str, int] = {}  # steps by worker, at the one that counts
        self._scored = 0  # how often the mean model was
        self._stopped = self._stepping = False
        self._step = -1  # the step that this worker makes, or has made last
        self._offers: list[Message] = []
        self._asks: list[tuple[str, int]] = []  # who wants the model, and after which round
        self._asked = ""  # the partner that has yet to answer
        self._answer: Future[Message | None] = world.future()
        self._begun = self._resumed = False
        self._meet()
        mail = self._mail
        mail.on("offer", self._on_offer)
        mail.on("answer", self._on_answer)
        mail.on("step", lambda message: self._on_step(message.sender, message.round + 1))
        mail.on("ask", lambda message: self._on_ask(message.sender, message.round))
        mail.on("stop", lambda message: self._on_stop())
        self._mean.on_reached = self._stop_all
        self._peers.on_change.append(lambda epoch: self._on_change())
        self._peers.on_heard = self._on_heard

    @property
    def end(self) -> float:
        return self._step + 1 if self._stopped else math.inf

    @property
    def value(self) -> Tensor:
        return self._model.flat

    def state(self) -> State:
        """Return what a checkpoint keeps: all workers have made the same number of steps, and no exchange is open."""
        return {"scored": self._scored} | under("model", self._model.state())

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._resumed = True
        self._scored = int(state["scored"])
        self._model.load_state(below("model", state))

    def give(self) -> State:
        """Return what a worker that joins takes."""
        return self._model.state()

    def take(self, state: State) -> None:
        self._model.load_state(state)

    @property
    def neighbours(self) -> list[str]:
        """Return the workers that this one mixes with."""
        return [self._names[rank] for rank in self._everyone.neighbours]

    def _partners(self, step: int) -> Partners:
        return self._inside if (step + 1) % self._lan_rounds else self._everyone

    def agree(self, agreed: Agreed) -> None:
        """Nothing: workers mix with those that take part, each at its own time."""

    def start(self, first_round: int) -> None:
        """At a checkpoint all workers have made the same number of steps."""
        self._begun, self._step = True, first_round - 1
        if self._peers.regroups and not self._resumed:
            self._count(first_round)
        else:
            self._made = dict.fromkeys(self._names, first_round)

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        self._step = round_
        self._peers.progress = max(round_, self._peers.progress or 0)
        started_s = self._world.now()
        asks = self._partners(round_).asks
        exchange = self._world.spawn(self._exchange(round_), "an exchange") if asks else None
        result = await self._model.work(round_, self._counts.of(round_))
        if exchange is not None:
            await self._world.wait(exchange, f"the exchange of step {round_}")
        self._stepping = True  # a thread may be changing the model: what others want waits until it has
        await self._model.step(round_, result)
        self._stepping = False
        self._model.show(self.value)
        self._answer_all()
        over(RoundDone(round_, started_s, result))
        self._count(round_ + 1)

    def score(self, round_: int) -> None:
        """Nothing: the worker that counts steps says when the mean is due."""

    def final_round(self, rounds: int) -> int:
        return min(math.ceil(self._mean_steps()), self._steps) - 1

    def _mean_steps(self) -> float:
        """Return how many steps the workers have made on the mean, as far as this one knows."""
        return sum(self._made.get(name, 0) for name in self._names) / len(self._names)

    def _count(self, made: int) -> None:
        """Let the worker that counts know how many steps this one has made."""
        if self._counter == self._world.node:
            self._on_step(self._world.node, made)
        else:
            self._world.spawn(self._mail.send(self._counter, "step", made - 1), "steps for the worker that counts")

    async def _exchange(self, step: int) -> None:
        if not self._partners(step).neighbours:
            return  # they are lost
        rank = self._partners(step).partner(seed_for(self._seed, "partner", self._rank, step))
        partner, mine = self._names[rank], self._model.flat
        if not self._peers.can_hear(partner):
            return
        self._answer, self._asked = self._world.future(), partner
        await self._mail.send(partner, "offer", step, mine)
        message = await self._world.wait(self._answer, f"the answer of {partner} in step {step}")
        self._asked = ""
        if message is not None:
            self._model.set(self._model.flat + (message.parts[0] - mine) / 2)

    def _on_offer(self, message: Message) -> None:
        self._offers.append(message)
        if not self._stepping:
            self._answer_all()

    def _on_ask(self, worker: str, round_: int) -> None:
        self._asks.append((worker, round_))
        if not self._stepping:
            self._answer_all()

    def _answer_all(self) -> None:
        """Give the model as it is to who scores it. Answer offers with it, and move half way to each.

        Nothing else happens between the two.
        """
        asks, self._asks = self._asks, []
        for worker, round_ in asks:
            self._world.spawn(self._mean.give(worker, round_, self._model.flat), "a model to be scored")
        offers, self._offers = self._offers, []
        for offer in offers:
            if not self._peers.accepts(offer):
                continue  # lost since it came
            mine = self._model.flat
            self._world.spawn(self._mail.send(offer.sender, "answer", offer.round, mine), "an answer")
            self._model.set(mine + (offer.parts[0] - mine) / 2)

    def _on_answer(self, message: Message) -> None:
        if message.sender == self._asked and not self._answer.done():
            self._answer.set_result(message)

    def _on_step(self, worker: str, made: int) -> None:
        self._made[worker] = max(made, self._made.get(worker, 0))
        if self._mean_steps() >= self._steps and not self._stopped:
            self._stop_all()
        elif self._begun and self._counter == self._world.node:
            self._score_mean()

    def _score_mean(self) -> None:
        """Let the mean of all models be scored, if that is due; the last one is scored when all have ended."""
        due = int(self._mean_steps()) // self._every
        if due <= self._scored or self._stopped:
            return
        self._scored, round_ = due, due * self._every - 1
        self._mean.score(round_, self._names)
        for name in self._names:
            if name == self._world.node:
                self._on_ask(name, round_)
            else:
                self._world.spawn(self._mail.send_aside(name, "ask", round_), f"the question for the model of {name}")

    def _stop_all(self) -> None:
        if self._stopped:
            return
        self._on_stop()
        for other in self._names:
            if other != self._world.node:
                self._world.spawn(self._mail.send(other, "stop", 0), "declare the end")

    def _on_stop(self) -> None:
        self._stopped = True

    # ---- changes of the membership ------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Mix with those who take part from now on."""
        self._names = self._peers.names
        self._counter = self._peers.by_seniority[0]  # who scores as well
        self._rank = self._names.index(self._world.node) if self._world.node in self._names else 0
        self._inside, self._everyone = (Partners(graph, self._rank) for graph in self._graphs_of(self._names))

    def _on_change(self) -> None:
        self._meet()
        self._made = {name: made for name, made in self._made.items() if name in self._names}
        if self._asked and self._asked not in self._names and not self._answer.done():
            self._answer.set_result(None)
        if self._begun:
            self._tell(self._counter)

    def _on_heard(self, name: str) -> None:
        if self._begun and (self._stopped or name == self._counter):
            self._tell(name)

    def _tell(self, other: str) -> None:
        """Tell another worker what it may not know: that the end is declared, or how many steps this one has made."""
        if other == self._world.node:
            self._on_step(other, self._made.get(other, 0))
        elif self._stopped:
            self._world.spawn(self._mail.send(other, "stop", 0), "declare the end")
        else:
            made = max(0, self._peers.progress or 0)
            self._world.spawn(self._mail.send(other, "step", made - 1), "steps for the worker that counts")
