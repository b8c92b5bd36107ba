"""AD-PSGD (Lian et al., ICML 2018): a worker averages with a neighbour while it computes; it waits for no other's step.

An active worker sends its model (``offer``) to a passive one, which answers with its own (``answer``) and moves half
way towards the offer; the active one moves half way towards the answer.

All workers together make the number of steps that the scenario asks for. Each worker reports its steps to the first
worker (``step``). The first worker counts them and, as long as steps are left, permits the reporting worker the step
after the next (``go``). So a worker usually need not wait for a permission, and the last steps go to the workers that
are ready first. Whenever an evaluation is due, by the mean number of steps of all workers, the first worker asks all
workers for their models (``ask``), and scores their mean. These messages do not belong to the algorithm or count in its
time, so they bypass the modelled network.

A lost worker is no longer asked, and no worker waits for its answer. If the first worker is lost, the first of the
others takes over counting, after all have reported to it how many steps they have made.
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

# How many steps a worker may be ahead of its last report: the answer to the report may take as long as one step.
_AHEAD = 2


class AsynchronousGossip(GossipAlgorithm):
    """One worker. ``Partners`` explains why averaging preserves the mean and cannot deadlock.

    graphs_of  returns two graphs of the workers that take part: for LAN rounds, and for all other rounds
    """

    def __init__(
        self,
        world: World,
        parts: GossipParts,
        plan: Plan,
        graphs_of: Callable[[Sequence[str]], tuple[Graph, Graph]],
    ) -> None:
        super().__init__(world, parts)
        peers = self._peers
        mail = self._mail
        self._graphs_of = graphs_of
        self._lan_rounds = sync_setup.lan_rounds(plan)
        self._steps = plan.training.rounds  # mean steps per worker
        self._seed = plan.seed
        self._budget = self._steps * len(plan.training_workers)  # steps of all workers together
        self._resumed_at = 0  # steps of all workers when the run was resumed
        self._total = 0  # steps permitted to all workers so far, as far as this worker knows
        self._every = plan.training.evaluate_every  # mean steps per worker from one evaluation to the next
        self._ahead = min(_AHEAD, self._steps)
        self._counts = LocalStepCounts(plan, world.node, peers.names)
        self._made: dict[str, int] = {}  # at the counting worker, by worker: steps made
        self._granted: dict[str, int] = {}  # at the counting worker, by worker: steps permitted
        self._ended: set[str] = set()  # at the counting worker: workers told that no more steps are left
        self._scored = 0  # how often the mean model was scored
        self._may_make = 0  # steps permitted to this worker
        self._told: Future[None] = world.future()  # set by news: more steps are permitted, or none are left
        self._none_left = False  # no steps are left beyond the permitted ones
        self._stopped = self._stepping = False
        self._offers: list[Message] = []
        self._asks: list[tuple[str, int]] = []  # workers that want the model to score it, and the round
        self._asked = ""  # the partner that has yet to answer
        self._answer: Future[Message | None] = world.future()
        self._begun = False
        self._step = -1  # the step that this worker makes, or has made last
        self._is_over = False  # no step is left for this worker
        self._meet()
        mail.on("offer", self._on_offer)
        mail.on("answer", self._on_answer)
        mail.on("step", self._on_report)
        mail.on("go", lambda message: self._on_go(message.round, message.meta["total"], message.meta["last"]))
        mail.on("ask", lambda message: self._on_ask(message.sender, message.round))
        mail.on("stop", lambda message: self._on_stop())
        self._mean.on_reached = self._stop_all
        peers.on_change.append(lambda _: self._on_change())
        peers.on_heard = self._on_heard
        mail.on("open", lambda message: None)
        for name in () if peers.continues else (self._names if self._counter == world.node else [self._counter]):
            if name != world.node:
                self._send_aside(name, "open", 0)  # opens the connection before it is needed

    @property
    def end(self) -> float:
        return self._step + 1 if self._is_over or self._stopped else math.inf

    @property
    def value(self) -> Tensor:
        return self._model.flat

    def state(self) -> State:
        """Return what a checkpoint keeps: all workers have made the same number of steps, and no exchange is open."""
        made = (self._peers.progress or 0) + 1
        total = self._total - sum(granted - made for granted in self._granted.values())
        return {"scored": self._scored, "made": total, "step": made} | under("model", self._model.state())

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._scored = int(state["scored"])
        self._resumed_at = int(state["made"])
        self._begin(int(state["step"]))  # reports may come before this worker's start
        self._model.load_state(below("model", state))

    def give(self) -> State:
        """Return the state that a joining worker takes over."""
        return self._model.state()

    def take(self, state: State) -> None:
        self._model.load_state(state)

    @property
    def neighbours(self) -> list[str]:
        """Return the workers with which this one mixes."""
        return [self._names[rank] for rank in self._everyone.neighbours]

    def _partners(self, step: int) -> Partners:
        return self._inside if (step + 1) % self._lan_rounds else self._everyone

    def agree(self, agreed: Agreed) -> None:
        """Do nothing: each worker mixes at its own time with those that take part."""

    def start(self, first_round: int) -> None:
        self._step = first_round - 1
        if not self._begun:
            self._begin(first_round)

    def _begin(self, first_round: int) -> None:
        """Count from ``first_round`` on: at a checkpoint all workers have made the same number of steps."""
        self._begun = True
        if self._peers.joined_late:
            return
        reported = max(0, first_round - 1)  # after a checkpoint, the last step before it is yet to be reported
        self._may_make = reported + self._ahead  # as all begin together
        if self._counter != self._world.node:
            return
        self._total = max(self._total, self._resumed_at + (self._may_make - first_round) * len(self._names))
        for name in self._names:
            self._made.setdefault(name, reported)  # else its first report has come already
            self._granted.setdefault(name, self._may_make)

    async def ready(self, round_: int) -> None:
        self._is_over = not await self._may_step(round_)

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        self._step = round_
        self._peers.progress = max(round_, self._peers.progress or 0)
        started_s = self._world.now()
        asks = self._partners(round_).asks
        exchange = self._world.spawn(self._exchange(round_), "an exchange") if asks else None
        result = await self._model.work(round_, self._counts.of(round_))
        if exchange is not None:
            await self._world.wait(exchange, f"the exchange of step {round_}")
        self._stepping = True  # a thread may be changing the model: offers and requests wait until it has
        await self._model.step(round_, result)
        self._stepping = False
        self._model.show(self.value)
        over(RoundDone(round_, started_s, result))
        self._answer_all()

    def score(self, round_: int) -> None:
        """Do nothing: the counting worker decides when to score the mean model."""

    async def _may_step(self, made: int) -> bool:
        """Report how many steps this worker has made, and return whether it may make another."""
        self._report(made)
        while made >= self._may_make and not (self._none_left or self._stopped):
            self._told = self._world.future()
            await self._world.wait(self._told, f"the word of {self._counter} that step {made} may begin")
        return made < self._may_make and not self._stopped

    def _report(self, made: int) -> None:
        if self._counter == self._world.node:
            self._on_step(self._world.node, made, self._may_make, self._total)
        else:
            self._send_aside(self._counter, "step", made, granted=self._may_make, total=self._total)

    def _send_aside(self, to: str, what: str, round_: int, **meta: Any) -> None:
        self._world.spawn(self._mail.send_aside(to, what, round_, **meta), f"{what} for {to}")

    def final_round(self, rounds: int) -> int:
        return min(math.ceil(self._made_in_all() * self._steps / self._budget), self._steps) - 1

    def _made_in_all(self) -> int:
        """Return how many steps have been made, including those of lost workers; only at the counting worker."""
        return self._total - sum(self._granted[name] - made for name, made in self._made.items())

    async def _exchange(self, step: int) -> None:
        if not self._partners(step).neighbours:
            return  # all neighbours are lost
        rank = self._partners(step).partner(seed_for(self._seed, "partner", self._rank, step))
        partner = self._names[rank]
        mine = self._model.flat
        if not self._peers.can_hear(partner):
            return
        self._answer = self._world.future()
        self._asked = partner
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
        """Answer requests and offers with the current model. Answer and move half way to each offer without a wait."""
        asks, self._asks = self._asks, []
        for worker, round_ in asks:
            self._world.spawn(self._mean.give(worker, round_, self._model.flat), "a model to be scored")
        offers, self._offers = self._offers, []
        for offer in offers:
            if self._peers.is_of_the_lost(offer):
                continue  # its sender was lost after the offer came
            mine = self._model.flat
            self._world.spawn(self._mail.send(offer.sender, "answer", offer.round, mine), "an answer")
            self._model.set(mine + (offer.parts[0] - mine) / 2)

    def _on_answer(self, message: Message) -> None:
        if message.sender == self._asked and not self._answer.done():
            self._answer.set_result(message)

    def _on_report(self, message: Message) -> None:
        self._on_step(message.sender, message.round, message.meta["granted"], message.meta["total"])

    def _on_step(self, worker: str, made: int, granted: int, total: int) -> None:
        """Note the report of ``worker`` at the counting worker, and permit it the step after the next."""
        self._total = max(total, self._total)  # includes the steps that a lost counting worker has permitted
        self._made[worker] = max(made, self._made.get(worker, 0))
        self._granted[worker] = max(made, granted, self._granted.get(worker, 0))
        self._grant()
        self._score()

    def _grant(self) -> None:
        if not self._begun or any(name not in self._made and self._peers.joined_in(name) == 0 for name in self._names):
            return  # this worker has replaced a lost counting worker, and still lacks reports of others
        going_on = [name for name in self._made if name not in self._ended]
        for name in going_on:
            more = max(0, min(self._made[name] + self._ahead - self._granted[name], self._budget - self._total))
            self._granted[name] += more
            self._total += more
            if more:
                self._go(name, last=False)
        for name in going_on if self._total >= self._budget else ():
            self._ended.add(name)
            self._go(name, last=True)

    def _go(self, worker: str, last: bool) -> None:
        if worker == self._world.node:
            self._on_go(self._granted[worker], self._total, last)
        else:
            self._send_aside(worker, "go", self._granted[worker], total=self._total, last=last)

    def _on_go(self, steps: int, total: int, last: bool) -> None:
        self._may_make, self._total, self._none_left = max(steps, self._may_make), max(total, self._total), last
        self._tell_news()

    def _score(self) -> None:
        """Have the mean of all models scored, if that is due. The final mean is scored when all workers have ended."""
        made = self._made_in_all()
        due = made * self._steps // (self._budget * self._every)
        if due <= self._scored or self._stopped or made >= self._budget:
            return
        self._scored = due
        round_ = due * self._every - 1
        names = [name for name in self._names if name in self._made]
        self._mean.score(round_, {name: self._peers.joined_in(name) for name in names})
        for name in names:
            if name == self._world.node:
                self._on_ask(name, round_)
            else:
                self._send_aside(name, "ask", round_)

    def _stop_all(self) -> None:
        for other in self._names:
            if other != self._world.node and not self._stopped:
                self._send_aside(other, "stop", 0)
        self._on_stop()

    def _on_stop(self) -> None:
        self._stopped = True
        self._tell_news()

    def _tell_news(self) -> None:
        if not self._told.done():
            self._told.set_result(None)

    # ---- changes of the membership ------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Mix with the workers that take part from now on."""
        self._names = self._peers.names
        self._counter = self._peers.eldest  # counts steps and scores the mean
        self._rank = self._names.index(self._world.node) if self._world.node in self._names else 0
        self._inside, self._everyone = (Partners(graph, self._rank) for graph in self._graphs_of(self._names))

    def _on_change(self) -> None:
        self._meet()
        for name in set(self._made).difference(self._names):
            self._total -= self._granted.pop(name) - self._made.pop(name)  # other workers make its remaining steps
            self._ended.discard(name)
        if self._asked and self._asked not in self._names and not self._answer.done():
            self._answer.set_result(None)
        if self._begun:
            self._tell(self._counter)

    def _on_heard(self, name: str) -> None:
        if self._begun and (self._stopped or name == self._counter):
            self._tell(name)

    def _tell(self, other: str) -> None:
        """Tell another worker that the run was stopped, or the counting worker how many steps this one has made."""
        if self._stopped and other != self._world.node:
            self._send_aside(other, "stop", 0)
        elif other == self._counter:
            self._report(max(0, self._peers.progress or 0))
