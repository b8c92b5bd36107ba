"""A worker that leaves a run in good order: what it has computed is in the model, and nobody waits for it.

It goes between two of its rounds, when all that it pushed has been answered, and after one that went all the way up:
what a data centre has only averaged inside (HFA) would be lost with its last worker. For the scheduler it is an epoch.
"""

from __future__ import annotations

import math

from testbed.engine import technique
from testbed.engine.inbox import Mail
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.world import World


class Departure:
    """Whether this worker is to leave: by the Plan after a round, or at a time, when its world says so."""

    def __init__(self, world: World, inbox: Mail, plan: Plan, node: NodePlan) -> None:
        self._world, self._across = world, technique.lan_rounds(plan)
        rounds = [
            fault.round for fault in plan.faults
            if fault.kind == "leave" and fault.round is not None and node.name in fault.targets
        ]  # fmt: skip
        self._after: float = min(rounds, default=math.inf)
        self._last_round = plan.training.rounds - 1
        self._asked = False
        inbox.on(MessageKind.LEAVE, self._on_asked)

    def due(self, round_: int) -> bool:
        """Whether ``round_``, which is over, was this worker's last. After the last of all, it ends like the others."""
        if round_ == self._last_round or (round_ + 1) % self._across:
            return False
        if round_ >= self._after and not self._asked:
            self._world.record("fault", fault="leave", targets=self._world.node, begins=True)
        return self._asked or round_ >= self._after

    def _on_asked(self, message: Message) -> None:
        self._asked = True
