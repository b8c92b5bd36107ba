"""Decides when a worker leaves a run that goes on without it."""

from __future__ import annotations

import math

from testbed.engine import sync_setup
from testbed.engine.inbox import Mail
from testbed.messages import Message, MessageKind
from testbed.plan.asynchronous import rounds_of_each
from testbed.plan.model import NodePlan, Plan
from testbed.world import World


class Departure:
    """Decides whether this worker leaves: after a round that the Plan names, or when its world asks it to (LEAVE).

    The worker leaves between two of its rounds, when every push is answered, and only after a round whose aggregate
    crossed the WAN: an average made only inside a data centre (HFA) would be lost with its last worker. So all its work
    is in the model, and no other node waits for it. The scheduler makes a new membership epoch of it. In a resumed run,
    the world must ask again.
    """

    def __init__(self, world: World, inbox: Mail, plan: Plan, node: NodePlan) -> None:
        self._world = world
        self._lan_rounds = sync_setup.lan_rounds(plan)
        rounds = [
            fault.round
            for fault in plan.faults
            if fault.kind == "leave" and fault.round is not None and node.name in fault.targets
        ]
        self._after: float = min(rounds, default=math.inf)
        self._last_round = rounds_of_each(plan) - 1
        self._asked = False
        inbox.on(MessageKind.LEAVE, self._on_asked)

    def due(self, round_: int) -> bool:
        """Return whether this worker leaves after ``round_``; not after the run's last round, when all workers end."""
        if round_ == self._last_round or (round_ + 1) % self._lan_rounds:
            return False
        if round_ >= self._after and not self._asked:
            self._world.record("fault", fault="leave", targets=self._world.node, begins=True)
        return self._asked or round_ >= self._after

    def _on_asked(self, message: Message) -> None:
        self._asked = True
