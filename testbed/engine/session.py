"""The common part of all roles but the scheduler: an inbox, the membership, and the events of start and end.

A role first registers its handlers. Then it joins, does its part, and ends (``finish`` or ``ended``, ``record_final``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from testbed.engine.guard import Guarded
from testbed.engine.inbox import Inbox
from testbed.engine.loading import LoadingTrainer, loading_of
from testbed.engine.membership import Membership
from testbed.engine.peers import Peers
from testbed.finite import count_not_finite
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import Learner, values_sha256
from testbed.world import Future, World


class Session:
    """One node's part in one run."""

    def __init__(self, plan: Plan, node: NodePlan, world: World, company: Plan | None = None) -> None:
        """``company``: the Plan of the nodes with which this node exchanges; ``None``: the run's Plan."""
        world.record("start", role=node.role, data_center=node.data_center)
        self.inbox = Inbox(world)
        self.membership = Membership(world, self.inbox, plan)
        self.peers = Peers(world, self.inbox, self.membership, company or plan)
        self.world = world
        self.plan = plan
        # the keys of this node's final values in the whole model, if the node holds a part of it
        self.keys: Sequence[int] = ()
        self._role = node.role
        self._loading: LoadingTrainer | None = None
        self._reading: Future[None]

    def use(self, learner: Learner) -> None:
        """Let ``learner`` load its samples through this node, and let its guard record events."""
        self._loading = loading_of(learner)
        if self._loading is not None:
            self._loading.open(self.world, self.inbox)
        if isinstance(learner, Guarded):
            learner.record = self.world.record

    async def join(self) -> None:
        """Start reading messages, and register; return when every node of the Plan has registered."""
        self._reading = self.world.spawn(self.inbox.run(), "inbox")
        await self.membership.join()

    async def finish(self, leaves: bool = False) -> None:
        """End a worker's part. Return when all have finished or, if it ``leaves``, when the scheduler lets it go."""
        if self._loading is not None:
            await self._loading.loader.finish()
        await (self.membership.depart() if leaves else self.membership.finish())
        await self._reading

    async def ended(self) -> None:
        """Return when the run has ended and every message is read."""
        await self.membership.ended()
        await self._reading

    async def record_final(self, values: list[Tensor], **fields: Any) -> list[Tensor]:
        """Record the hash of this node's final values, and the number of those that are not finite. Return the values.

        If the node holds a part of the model, record each key's hash as well, so that all parts can be put together.
        """
        sha256, count = await self.world.aside(lambda: (values_sha256(values), sum(map(count_not_finite, values))))
        spoilt = {"not_finite": count} if count else {}
        parts = {}
        if self.keys and sha256 is not None:
            parts["keys_sha256"] = await self.world.aside(lambda: _hashes(self.keys, values))
        self.world.record("final", role=self._role, **fields, parameters_sha256=sha256, **parts, **spoilt)
        return values


def _hashes(keys: Sequence[int], values: Sequence[Tensor]) -> str:
    """Return ``key:hash`` of each value, separated by blanks."""
    return " ".join(f"{key}:{values_sha256([value])}" for key, value in zip(keys, values, strict=True))
