"""Synchronous gossip: D-PSGD and SGP. Sums take the own model first, then rank order, so bits do not depend on timing.

D-PSGD (Lian et al., NeurIPS 2017): models travel while the gradient is computed; then x ← Σ w_ij x_j − η g(x_i).
SGP (Assran et al., ICML 2019): a step on the push-sum numerator x with the gradient at z = x / y, then x and y go out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from testbed.engine.assigned_steps import LocalStepCounts, Report
from testbed.engine.evaluation import Evaluation
from testbed.engine.gossip.compressed import Compression
from testbed.engine.gossip.model import GossipMail, Keep, OwnModel
from testbed.engine.local_work import LocalResult
from testbed.messages import Message
from testbed.plan.model import Plan
from testbed.policy.gossip.mixing import Mixing, Part, rounds_to_reach_all
from testbed.state import State, below, under
from testbed.world import Future, Work, World


class SynchronousGossip:
    """One worker. ``push``: step first, then push (SGP); else mix while computing (D-PSGD).

    compression  what models pass through; ``None``: they travel as they are
    """

    def __init__(
        self, world: World, mail: GossipMail, model: OwnModel, ranks: Sequence[str], mixing: Mixing,
        plan: Plan, *, push: bool,
    ) -> None:  # fmt: skip
        self._world, self._mail, self._model, self._mixing = world, mail, model, mixing
        self._ranks, self._rank = ranks, ranks.index(world.node)
        self._weight, self._push = 1.0, push
        self.compression: Compression | None = None
        self._last_round = self._planned_round = plan.training.rounds - 1
        self._counts = LocalStepCounts(plan, world.node, ranks)
        # The end is announced in the messages of round r and known to all workers this many rounds later, one of which
        # passes before the first of these messages leaves. All workers so stop after the same round.
        self._rounds_to_announce = rounds_to_reach_all(mixing) + 1

    @property
    def value(self) -> Tensor:
        """This worker's estimate of the model: x / y."""
        flat = self._model.flat
        return flat if self._weight == 1.0 else flat / self._weight

    def state(self) -> State:
        """Return what a checkpoint keeps, between two rounds."""
        ends = {"last_round": self._last_round} if self._last_round < self._planned_round else {}  # announced
        kept = under("compression", self.compression.state()) if self.compression else {}
        kept |= under("model", self._model.state()) | under("steps", self._counts.state())
        return {"weight": self._weight, **ends, **kept}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``."""
        self._weight, self._last_round = state["weight"], state.get("last_round", self._planned_round)
        self._model.load_state(below("model", state))
        self._counts.load_state(below("steps", state))
        if self.compression is not None:
            self.compression.load_state(below("compression", state))

    async def run(self, evaluation: Evaluation, first_round: int, keep: Keep) -> int:
        """Do all rounds up to the last, on which all workers agree. Return their number."""
        round_ = first_round
        while round_ <= self._last_round:
            started_s = self._world.now()
            result = await (self._push_round if self._push else self._mix_round)(round_)
            self._model.end_round(round_, started_s, result, self.value)
            if await evaluation.before_push(round_):
                self._last_round = min(self._last_round, round_ + self._rounds_to_announce)
            evaluation.after_round(round_)
            if round_ < self._last_round:
                await keep(round_)
            round_ += 1
        return round_

    async def _mix_round(self, round_: int) -> LocalResult:
        part = self._mixing.part(round_, self._rank)
        sends, started_s = await self._send_all(part, round_), self._world.now()
        result = await self._model.work(round_, self._counts.of(round_))
        self._counts.measured(round_, result, self._world.now() - started_s)
        await self._mix(part, round_)
        await self._model.step(round_, result)
        await self._sent(sends, round_)
        return result

    async def _push_round(self, round_: int) -> LocalResult:
        part, started_s = self._mixing.part(round_, self._rank), self._world.now()
        result = await self._model.work(round_, self._counts.of(round_), self.value)
        self._counts.measured(round_, result, self._world.now() - started_s)
        await self._model.step(round_, result)
        sends = await self._send_all(part, round_)
        await self._mix(part, round_)
        await self._sent(sends, round_)
        return result

    async def _send_all(self, part: Part, round_: int) -> list[Future[None]]:
        flat = self._model.flat
        meta: dict[str, Any] = {"weight": self._weight, "last": self._last_round}
        if self._counts.reports:
            meta["reports"] = dict(self._counts.reports)
        sends = []
        for to in part.sends:
            parts = (flat,) if self.compression is None else await self.compression.sent(to, flat, round_)
            sending = self._mail.send(self._ranks[to], "model", round_, *parts, **meta)
            sends.append(self._world.spawn(sending, "a model"))
        return sends

    async def _sent(self, sends: list[Future[None]], round_: int) -> None:
        for send in sends:
            await self._world.wait(send, f"the sends of round {round_}")

    async def _mix(self, part: Part, round_: int) -> None:
        """Take all models of this round, in rank order, and the earliest end that they announce."""
        messages = [await self._mail.model(round_, self._ranks[source]) for source, _ in part.receives]
        own = self._model.flat
        pairs = [(weight, message) for (_, weight), message in zip(part.receives, messages, strict=True)]
        if self.compression is not None:
            mixed, self._weight = await self.compression.mixed(own, self._weight, part, messages)
        else:
            work = Work("sum", round_, size_bytes=own.nbytes * (1 + len(pairs)))
            mixed = await self._world.compute(work, lambda: _mixed(own, part, pairs))
            self._weight = part.keep * self._weight + sum(weight * m.meta["weight"] for weight, m in pairs)
        self._model.set(mixed)
        self._last_round = min([self._last_round, *(message.meta["last"] for message in messages)])
        reports = [pair for message in messages for pair in message.meta.get("reports", {}).items()]
        self._counts.heard(round_, ((name, Report(*each)) for name, each in reports))


def _mixed(own: Tensor, part: Part, pairs: Sequence[tuple[float, Message]]) -> Tensor:
    total = own * part.keep
    for weight, message in pairs:
        total += weight * message.parts[0]
    return total
