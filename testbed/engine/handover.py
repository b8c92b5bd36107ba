"""What a worker that joins takes from another: what is on workers only, where each of them runs the optimizer.

Servers then have sums of gradients. A worker that joins begins with a round r that it is told by them. It asks a worker
that was there before for the state after round r - 1. That one has it from the end of its round r - 1 to the end of
round r, which needs a contribution of the worker that joins: so it cannot have gone further, and none waits for another
in a circle. If it is lost, the next one is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from testbed.engine import sync_setup
from testbed.engine.inbox import Inbox
from testbed.engine.membership import Membership
from testbed.engine.state_message import packed, unpacked
from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.state import State
from testbed.world import Future, World


class Handover:
    """One worker's part. ``provide`` returns its state after the last round that ``done`` has named."""

    def __init__(self, world: World, inbox: Inbox, membership: Membership, plan: Plan) -> None:
        self._world, self._membership = world, membership
        self._workers = [worker.name for worker in plan.training_workers]
        self._gone: set[str] = set()
        self._done = -1
        self._waiting: list[tuple[str, int, int]] = []  # who asks, with the number of the question and the round
        self._asked, self._source = 0, ""
        self._answer: Future[Message | None] = world.future()
        self.provide: Callable[[], Awaitable[State]] | None = None
        inbox.on(MessageKind.STATE, self._on_state)

    def done(self, round_: int) -> None:
        """Note that this worker has the state after ``round_``."""
        self._done = round_
        self._answer_those_who_wait()

    async def take(self, round_: int) -> State:
        """Return another worker's state after ``round_``. Raise ``RunFailed`` if no one is left that may have it."""
        absent = (self._world.node, *self._membership.absent)
        for name in [name for name in self._workers if name not in absent]:
            if name in self._gone:
                continue
            self._asked, self._source, self._answer = self._asked + 1, name, self._world.future()
            await self._world.send(name, Message(MessageKind.STATE, self._asked, round_))
            answer = await self._world.wait(self._answer, f"the state of {name} after round {round_}")
            if answer is not None:
                return unpacked(answer.meta, answer.parts)
        raise RunFailed(f"{self._world.node} has joined, and no other training worker is left that has the model")

    def on_members_lost(self, nodes: Collection[str]) -> None:
        """Ask lost workers no more, and do not answer them."""
        self._gone.update(nodes)
        self._waiting = [each for each in self._waiting if each[0] not in nodes]
        for name in nodes:
            self._world.forget(name, self._membership.changed_at_s)
        if self._source in nodes and not self._answer.done():
            self._answer.set_result(None)

    def _on_state(self, message: Message) -> None:
        if "layout" not in message.meta:
            self._waiting.append((message.sender, message.key, message.round))
            self._answer_those_who_wait()
        elif message.key == self._asked and not self._answer.done():
            self._answer.set_result(message)

    def _answer_those_who_wait(self) -> None:
        due = [each for each in self._waiting if each[2] <= self._done]
        self._waiting = [each for each in self._waiting if each not in due]
        for to, number, round_ in due:
            self._world.spawn(self._send(to, number, round_), f"the state after round {round_} for {to}")

    async def _send(self, to: str, number: int, round_: int) -> None:
        assert self.provide is not None, f"{to} asks for a state, and there is none"
        meta, parts = packed(await self.provide())
        await self._world.send(to, Message(MessageKind.STATE, number, round_, meta, parts))


def handover_of(world: World, inbox: Inbox, membership: Membership, plan: Plan, at_top: bool) -> Handover | None:
    """Return a worker's part in a run in which others may join, and workers run the optimizer on gradients.

    ``None`` in other runs. ``at_top``: an optimizer for gradients is at the servers, whatever a script says.
    """
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT and sync_setup.all_wait(plan)
    if plan.recovery.on_failure != "continue" or not gradients or at_top:
        return None
    handover, before = Handover(world, inbox, membership, plan), membership.on_members_lost

    def on_members_lost(nodes: list[str], epoch: int) -> None:
        before(nodes, epoch)
        handover.on_members_lost(nodes)

    membership.on_members_lost = on_members_lost
    return handover
