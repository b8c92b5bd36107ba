"""What a worker takes that joins where each worker runs the optimizer: the servers have sums of gradients only.

It begins with a round r on which all have agreed, and asks an earlier worker for the state after round r - 1. That one
has it from the end of its round r - 1 to the end of round r, which needs a contribution of the worker that joins: so it
cannot have gone further, and there is no circular wait. If it is lost, the next one is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from testbed.engine import sync_setup
from testbed.engine.membership import MembershipChanged
from testbed.engine.peers import Peers
from testbed.engine.session import Session
from testbed.errors import RunFailed
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.state import State
from testbed.world import World


class Handover:
    """The part of a worker that may join, or be asked by one that does: the state after a certain round."""

    def __init__(self, world: World, peers: Peers) -> None:
        self._world = world
        self._peers = peers

    def give(self, provide: Callable[[], Awaitable[State]]) -> None:
        """Answer those who ask with what ``provide`` returns."""
        self._peers.states.provide = provide

    def done(self, round_: int) -> None:
        """Note that this worker has the state after ``round_``."""
        self._peers.states.done(round_)

    async def take(self, round_: int) -> State:
        """Return another worker's state after ``round_``. Raise ``RunFailed`` if no one is left that may have it."""
        peers = self._peers
        mine = self._peers.joined_in(self._world.node) or 0
        while (peers.joined_in(peers.eldest) or 0) < mine:
            try:
                return await peers.states.ask(peers.eldest, round_)
            except MembershipChanged:
                continue
        raise RunFailed(f"{self._world.node} has joined, and no other training worker is left that has the model")


def handover_of(session: Session, plan: Plan, at_top: bool) -> Handover | None:
    """Return a worker's part in a run in which others may join, and workers run the optimizer on gradients.

    ``None`` in other runs. ``at_top``: an optimizer for gradients is at the servers, whatever a script says.
    """
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT and sync_setup.all_wait(plan)
    needed = plan.recovery.on_failure == "continue" and gradients and not at_top
    return Handover(session.world, session.peers) if needed else None
