"""NoLoCo: an outer step with momentum along the mean change of a few, which also draws their models together.

Kolehmainen et al., NoLoCo: No-all-reduce low communication training method for large models, 2025 (arXiv 2506.10911):

    δ_i ← α δ_i − β Δ̄ − γ (φ_i − φ̄);   φ_i ← φ_i + δ_i

φ_i is a replica's model before its local steps, Δ_i that less the one after them; means are over those whom it is
averaged with in this round, in the paper one other at random (``graph: matching``). α and β are momentum and step size
of the outer optimizer, in the paper that of heavy ball (``outer_optimizer: sgd``), γ is ``paradigm.correction``. As
that optimizer's momentum is on its gradient, this is a step along Δ̄ + γ/β (φ_i − φ̄); another optimizer may take it.

The authors' code (gensyn-ai/noloco, pipeline_diloco_optimizer.py at a1b4a42) has heavy ball with α = 0.3 and β = 0.7,
as here; it takes the mean by DiLoCo's all-reduce, and has no γ. That term is from memory, and so are the bounds for
pairs, α < γ < 2 + α. Model and change travel after the local steps; the paper sends the model before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.gossip.synchronous import SynchronousGossip, mean_of
from testbed.engine.local_work import LocalResult
from testbed.plan.model import Plan
from testbed.policy.gossip import GossipOptions
from testbed.world import Work


class ChangesGossip(SynchronousGossip):
    """One worker."""

    def __init__(self, world: Any, parts: Any, plan: Plan, make: Any, *, push: bool) -> None:
        super().__init__(world, parts, plan, make, push=push)
        rate = float(sync_setup.stepped_with(plan).options["learning_rate"])
        self._draws = GossipOptions(**plan.technique.paradigm.options).correction / rate

    async def _mix_round(self, round_: int) -> LocalResult:
        started_s = self._world.now()
        result = await self._model.work(round_, self._counts.of(round_))
        self._counts.measured(round_, result, self._world.now() - started_s)
        phase, part = self._part(round_)
        before = self._model.flat
        change = torch.cat(list(result.contributions.values()))
        sends = await self._send_all(phase, part, round_, change)
        part, messages = await self._received(phase, part, round_)

        def gradient() -> list[Tensor]:
            apart = before - mean_of(before, part, messages, 0)
            whole = mean_of(change, part, messages, 1).add_(apart, alpha=self._draws)
            return list(torch.split(whole, [each.numel() for each in result.contributions.values()]))

        work = Work("sum", round_, size_bytes=2 * before.nbytes * (1 + len(messages)))
        gradients = await self._world.compute(work, gradient)
        result.contributions.update(zip(result.contributions, gradients, strict=True))
        await self._model.step(round_, result)
        await self._sent(sends, round_)
        return result
