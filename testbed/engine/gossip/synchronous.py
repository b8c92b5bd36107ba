"""Synchronous gossip: D-PSGD and SGP. Sums take the own model first, then rank order, so bits do not depend on timing.

D-PSGD (Lian et al., NeurIPS 2017): models travel while the gradient is computed; then x ← Σ w_ij x_j − η g(x_i).
SGP (Assran et al., ICML 2019): a step on the push-sum numerator x with the gradient at z = x / y, then x and y go out.

When a worker is lost, its neighbours keep the weight that it had. All finish the rounds that they have begun, and agree
on the newest of them: from the next one on they mix along a graph of those who are left, or have joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from testbed.engine.assigned_steps import LocalStepCounts, Report
from testbed.engine.exchange import RoundDone
from testbed.engine.gossip.algorithm import GossipAlgorithm, GossipParts
from testbed.engine.gossip.compressed import Compression
from testbed.engine.local_work import LocalResult
from testbed.engine.peers import Agreed
from testbed.messages import Message
from testbed.plan.model import Plan
from testbed.policy.gossip.mixing import Mixing, Part, rounds_to_hear_of_all, rounds_to_tell_all
from testbed.state import State, below, under
from testbed.world import Future, Work, World


@dataclass(frozen=True, slots=True)
class MixingRounds:
    """A phase: rounds in which the same workers mix.

    epoch        membership epoch in which the phase was agreed on
    since        its first round
    scores       the worker that scores the mean of all models
    joined_in    by worker, in rank order: the epoch in which it joined, which tells apart processes of one name
    compression  codecs that models pass through; ``None``: they travel as they are
    """

    epoch: int
    since: int
    scores: str
    joined_in: Mapping[str, int]
    mixing: Mixing
    compression: Compression | None

    @property
    def names(self) -> tuple[str, ...]:
        """The workers in rank order."""
        return tuple(self.joined_in)


MakeMixing = Callable[[Sequence[str]], Mixing]
MakeCompression = Callable[[Mixing, Sequence[str], bool], Compression | None]


class SynchronousGossip(GossipAlgorithm):
    """One worker. ``push``: step first, then push (SGP); else mix while computing (D-PSGD).

    make_mixing       returns who mixes with whom, among given workers
    make_compression  returns the compression of their models; last argument: whether the phase begins the run
    """

    def __init__(
        self,
        world: World,
        parts: GossipParts,
        plan: Plan,
        make: tuple[MakeMixing, MakeCompression],
        *,
        push: bool,
    ) -> None:
        super().__init__(world, parts)
        self._reached = False  # this worker has found that the target is reached
        self._every = plan.training.evaluate_every
        if plan.training.target is not None:
            self._evaluation.decide = self._decide
        self._make_mixing, self._make_compression = make
        self._weight = 1.0
        self._push = push
        self._planned_round = plan.training.rounds - 1
        self._counts = LocalStepCounts(plan, world.node, self._peers.names)
        self._phases: list[MixingRounds] = [self._phase(0, 0)]

    @property
    def value(self) -> Tensor:
        """This worker's estimate of the model: x / y."""
        flat = self._model.flat
        return flat if self._weight == 1.0 else flat / self._weight

    @property
    def _last_round(self) -> int:
        return self._peers.last

    @property
    def _agrees(self) -> bool:
        """Whether the newest phase is that of the newest epoch."""
        return self._phases[-1].epoch == self._peers.epoch

    def state(self) -> State:
        """Return what a checkpoint keeps, between two rounds: the newest phase has begun, or begins now."""
        ends = {"last_round": self._last_round} if self._last_round < self._planned_round else {}  # announced
        phase = self._phases[-1]
        kept = under("compression", phase.compression.state()) if phase.compression else {}
        changed = {"epoch": phase.epoch, "since": phase.since} if phase.epoch else {}
        kept |= under("model", self._model.state()) | under("steps", self._counts.state())
        return {"weight": self._weight, **ends, **changed, **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._weight = state["weight"]
        self._peers.last = state.get("last_round", self._planned_round)
        self._model.load_state(below("model", state))
        self._counts.load_state(below("steps", state))
        if "epoch" in state:
            self._phases = [self._phase(state["epoch"], state["since"])]
        compression = self._phases[0].compression
        if compression is not None:
            compression.load_state(below("compression", state))

    def give(self) -> State:
        """Return the state that a joining worker takes over."""
        return {"weight": self._weight} | under("model", self._model.state())

    def take(self, state: State) -> None:
        self._weight = state["weight"]
        self._model.load_state(below("model", state))

    @property
    def neighbours(self) -> list[str]:
        """Return the workers whose models this one mixes."""
        phase = self._phases[-1]
        part = phase.mixing.part(phase.since, phase.names.index(self._world.node))
        return [phase.names[rank] for rank, _ in part.receives]

    def agree(self, agreed: Agreed) -> None:
        """Mix with the present workers from the first round that no worker has begun yet."""
        self._peers.last = min(self._peers.last, agreed.last)
        if agreed.epoch > self._phases[-1].epoch:
            self._phases.append(self._phase(agreed.epoch, agreed.progress + 1))

    def _phase(self, epoch: int, since: int) -> MixingRounds:
        joined_in = {name: self._peers.joined_in(name) or 0 for name in self._peers.names}
        names = tuple(joined_in)
        mixing = self._make_mixing(names)
        compression = self._make_compression(mixing, names, epoch == 0)
        return MixingRounds(epoch, since, self._peers.eldest, joined_in, mixing, compression)

    @property
    def end(self) -> float:
        return self._last_round + 1

    def start(self, first_round: int) -> None:
        """Do nothing: the first phase has begun."""

    async def ready(self, round_: int) -> None:
        while not self._agrees:
            await self._peers.agreed()
        while len(self._phases) > 1 and self._phases[1].since <= round_:
            del self._phases[0]
        if self._reached:
            self._announce(round_)

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        self._peers.progress = round_  # before anything of this round is sent
        started_s = self._world.now()
        result = await (self._push_round if self._push else self._mix_round)(round_)
        self._model.show(self.value)
        self._reached = await self._evaluation.decided(round_)
        if self._reached and self._agrees:  # else when they agree again
            self._announce(round_ + 1)
        over(RoundDone(round_, started_s, result))

    async def _decide(self, round_: int) -> bool:
        """Return whether the target is reached by the scores that are used at the end of ``round_``.

        A score is used only after so many further rounds that this worker has heard of all others' models by then.
        Otherwise it would wait for the slowest worker, which no gossip algorithm does.
        """
        phase = self._phases[0]
        rank = phase.names.index(self._world.node)
        scored = round_ - self._every
        while scored + rounds_to_hear_of_all(phase.mixing, rank, scored + 1) > round_:
            scored -= 1
        await self._mean.settled(scored)
        return self._evaluation.reached_by(scored)

    def score(self, round_: int) -> None:
        """Have the mean of all models scored, if that is due. The final mean is scored when all workers have ended."""
        if round_ % self._every != self._every - 1 or round_ >= self._last_round:
            return
        phase = self._phases[0]
        self._world.spawn(self._mean.give(phase.scores, round_, self.value), "a model to be scored")
        if phase.scores == self._world.node:
            self._mean.score(round_, phase.joined_in)

    def final_round(self, rounds: int) -> int:
        return rounds - 1

    def _announce(self, round_: int) -> None:
        """Set the last round, so that all workers know it by then. Messages announce it from ``round_`` on."""
        phase = self._phases[-1]
        first = max(round_, phase.since)
        told = first + rounds_to_tell_all(phase.mixing, phase.names.index(self._world.node), first)
        self._peers.last = min(self._last_round, told)

    async def _mix_round(self, round_: int) -> LocalResult:
        phase, part = self._part(round_)
        sends = await self._send_all(phase, part, round_)
        started_s = self._world.now()
        result = await self._model.work(round_, self._counts.of(round_))
        self._counts.measured(round_, result, self._world.now() - started_s)
        await self._mix(phase, part, round_)
        await self._model.step(round_, result)
        await self._sent(sends, round_)
        return result

    async def _push_round(self, round_: int) -> LocalResult:
        started_s = self._world.now()
        result = await self._model.work(round_, self._counts.of(round_), self.value)
        self._counts.measured(round_, result, self._world.now() - started_s)
        await self._model.step(round_, result)
        phase, part = self._part(round_)
        sends = await self._send_all(phase, part, round_)
        await self._mix(phase, part, round_)
        await self._sent(sends, round_)
        return result

    def _part(self, round_: int) -> tuple[MixingRounds, Part]:
        phase = self._phases[0]
        part = phase.mixing.part(round_, phase.names.index(self._world.node))
        return phase, part.without(self._lost(phase), pushes=self._push)

    def _lost(self, phase: MixingRounds) -> set[int]:
        """Return the ranks of the processes that no longer take part."""
        joined_in = enumerate(phase.joined_in.items())
        return {rank for rank, (name, epoch) in joined_in if self._peers.joined_in(name) != epoch}

    async def _send_all(self, phase: MixingRounds, part: Part, round_: int, *besides: Tensor) -> list[Future[None]]:
        """Begin to send this worker's model. The tensors ``besides`` travel with it, uncompressed."""
        flat = self._model.flat
        meta: dict[str, Any] = {"weight": self._weight, "last": self._last_round}
        if self._counts.reports:
            meta["reports"] = dict(self._counts.reports)
        sends = []
        for to in part.sends:
            parts = (flat,) if phase.compression is None else await phase.compression.sent(to, flat, round_)
            sending = self._mail.send(phase.names[to], "model", round_, *parts, *besides, **meta)
            sends.append(self._world.spawn(sending, "a model"))
        return sends

    async def _sent(self, sends: list[Future[None]], round_: int) -> None:
        for send in sends:
            await self._world.wait(send, f"the sends of round {round_}")

    async def _mix(self, phase: MixingRounds, part: Part, round_: int) -> None:
        """Wait for all models of this round, and mix them with this worker's own."""
        part, messages = await self._received(phase, part, round_)
        own = self._model.flat
        pairs = [(weight, message) for (_, weight), message in zip(part.receives, messages, strict=True)]
        if phase.compression is not None:
            mixed, self._weight = await phase.compression.mixed(own, self._weight, part, messages)
        else:
            work = Work("sum", round_, size_bytes=own.nbytes * (1 + len(pairs)))
            mixed = await self._world.compute(work, lambda: mean_of(own, part, messages, 0))
            self._weight = part.keep * self._weight + sum(weight * m.meta["weight"] for weight, m in pairs)
        self._model.set(mixed)

    async def _received(self, phase: MixingRounds, part: Part, round_: int) -> tuple[Part, list[Message]]:
        """Return this round's part without lost workers, and the messages of the others in rank order.

        Note the earliest last round that the messages announce, and their reports.
        """
        came: dict[int, Message] = {}
        for source, _ in part.receives:
            if source not in self._lost(phase):
                message = await self._mail.model(round_, phase.names[source])
                if message is not None:
                    came[source] = message
        missing = {source for source, _ in part.receives if source not in came}
        part = part.without(missing, pushes=self._push) if missing else part
        messages = [came[source] for source, _ in part.receives]
        if self._agrees:  # otherwise the workers are yet to agree, also on the last round
            self._peers.last = min([self._last_round, *(message.meta["last"] for message in messages)])
        reports = [pair for message in messages for pair in message.meta.get("reports", {}).items()]
        self._counts.heard(round_, ((name, Report(*each)) for name, each in reports))
        return part, messages


def mean_of(own: Tensor, part: Part, messages: Sequence[Message], number: int) -> Tensor:
    """Return the weighted mean of this worker's tensor and the tensors at that index in the messages."""
    total = own * part.keep
    for (_, weight), message in zip(part.receives, messages, strict=True):
        total += weight * message.parts[number]
    return total
