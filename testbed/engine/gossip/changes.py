"""NoLoCo: an outer step with momentum along the mean change of a few workers, which also draws their models together.

Kolehmainen et al., NoLoCo: No-all-reduce low communication training method for large models, 2025 (arXiv 2506.10911):

    δ_i ← α δ_i − β Δ̄ − γ (φ_i − φ̄);   φ_i ← φ_i + δ_i

φ_i is a worker's model before its local steps, and Δ_i is φ_i minus its model after them. The means are over the worker
and those that it averages with in this round; in the paper that is one other worker, drawn at random (``graph:
matching``). α and β are momentum and step size of the outer optimizer, which is heavy ball in the paper
(``outer_optimizer: sgd``). γ is ``paradigm.correction``. The momentum of that optimizer includes its gradient, so the
rule is a step of the optimizer along Δ̄ + γ/β (φ_i − φ̄). Other optimizers may make the same step.

The authors' code (gensyn-ai/noloco, pipeline_diloco_optimizer.py at a1b4a42) has heavy ball with α = 0.3 and β = 0.7,
as here. But it takes the mean by DiLoCo's all-reduce and has no γ. The γ term and its bounds for pairs, α < γ < 2 + α,
are from memory. Model and change travel after the local steps; the paper sends the model before them.
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
    """One worker, which averages its change and its model with the same partners."""

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
