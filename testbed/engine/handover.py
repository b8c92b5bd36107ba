"""States of workers as messages, and what a worker that joins takes from another.

Where each worker runs the optimizer, the servers have sums of gradients. They tell a worker that joins the round r with
which it begins. It asks an earlier worker for the state after round r - 1. That one has it from the end of its round
r - 1 to the end of round r, which needs a contribution of the worker that joins: so it cannot have gone further, and
there is no circular wait. If it is lost, the next one is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.engine import sync_setup
from testbed.engine.inbox import Inbox
from testbed.engine.membership import MembershipChanged
from testbed.engine.session import Session
from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.state import State
from testbed.world import Future, World


class StateMail:
    """Asks another worker for its state, and answers who asks: ``provide`` returns this worker's.

    Who asks names a round, and is answered when this worker has done it (``done``); -1: at once.
    """

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world = world
        self._done = -1
        self._waiting: list[Message] = []
        self._asked = 0  # so far
        self._answer: Future[Message] | None = None
        self.provide: Callable[[], Awaitable[State]] | None = None
        inbox.on(MessageKind.STATE, self._on_state)

    async def ask(self, source: str, round_: int = -1, epoch: int = 0) -> State:
        """Return another worker's state after ``round_``. Raise ``MembershipChanged`` after ``give_up``.

        ``epoch``: in which this worker has joined, where it is to be told from the process in whose place it is.
        """
        self._asked, self._answer = self._asked + 1, self._world.future()
        meta = {"epoch": epoch} if epoch else {}
        await self._world.send(source, Message(MessageKind.STATE, self._asked, round_, meta))
        when = f" after round {round_}" if round_ >= 0 else ""
        message = await self._world.wait(self._answer, f"the state of {source}{when}")
        return unpacked(message.meta, message.parts)

    def give_up(self) -> None:
        """Wait for no answer any more."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(MembershipChanged())

    def done(self, round_: int) -> None:
        """Note that this worker has the state after ``round_``."""
        self._done = round_
        self._answer_those_who_wait()

    def _on_state(self, message: Message) -> None:
        if "layout" not in message.meta:
            self._waiting.append(message)
            self._answer_those_who_wait()
        elif message.key == self._asked and self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _answer_those_who_wait(self) -> None:
        due = [each for each in self._waiting if each.round <= self._done]
        self._waiting = [each for each in self._waiting if each.round > self._done]
        for message in due:
            self._world.spawn(self._send(message), f"the state after round {message.round} for {message.sender}")

    async def _send(self, asked: Message) -> None:
        assert self.provide is not None, f"{asked.sender} asks for a state, and there is none"
        meta, parts = packed(await self.provide())
        await self._world.send(asked.sender, Message(MessageKind.STATE, asked.key, asked.round, meta, parts))


class Handover(StateMail):
    """The part of a worker that may join, or be asked by one that does."""

    def __init__(self, session: Session, plan: Plan) -> None:
        super().__init__(session.world, session.inbox)
        self._membership = session.membership
        self._membership.on_members_lost.append(self._on_members_lost)
        self._workers = [worker.name for worker in plan.training_workers]
        self._gone: set[str] = set()
        self._source = ""

    async def take(self, round_: int) -> State:
        """Return another worker's state after ``round_``. Raise ``RunFailed`` if no one is left that may have it."""
        absent = (self._world.node, *self._membership.absent)
        for name in [name for name in self._workers if name not in absent]:
            if name in self._gone:
                continue
            self._source = name
            try:
                return await self.ask(name, round_, self._membership.epoch)
            except MembershipChanged:
                continue
        raise RunFailed(f"{self._world.node} has joined, and no other training worker is left that has the model")

    def _on_members_lost(self, nodes: Collection[str], epoch: int) -> None:
        """Ask lost workers no more, and do not answer them; the next process of one may have asked by now."""
        self._gone.update(nodes)
        self._waiting = [
            each for each in self._waiting if each.sender not in nodes or each.meta.get("epoch", 0) > epoch
        ]
        for name in nodes:
            self._world.forget(name, self._membership.changed_at_s)
        if self._source in nodes:
            self.give_up()


def handover_of(session: Session, plan: Plan, at_top: bool) -> Handover | None:
    """Return a worker's part in a run in which others may join, and workers run the optimizer on gradients.

    ``None`` in other runs. ``at_top``: an optimizer for gradients is at the servers, whatever a script says.
    """
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT and sync_setup.all_wait(plan)
    needed = plan.recovery.on_failure == "continue" and gradients and not at_top
    return Handover(session, plan) if needed else None


def packed(state: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Return a state as metadata and parts: tensors, joined by type, their names and shapes, and all other content."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    layout, rest = [], {}
    for name, content in state.items():
        if not isinstance(content, Tensor):
            rest[name] = content
            continue
        alike = by_type.setdefault(content.dtype, [])
        layout.append([name, list(by_type).index(content.dtype), list(content.shape)])
        alike.append(content.reshape(-1))
    return {"layout": layout, "rest": rest}, tuple(torch.cat(alike) for alike in by_type.values())


def unpacked(meta: Mapping[str, Any], parts: Sequence[Tensor]) -> State:
    state: State = dict(meta["rest"])
    starts = [0] * len(parts)
    for name, part, shape in meta["layout"]:
        start = starts[part]
        starts[part] = stop = start + torch.Size(shape).numel()
        state[name] = parts[part][start:stop].view(shape).clone()
    return state
