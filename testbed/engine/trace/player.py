"""Plays one rank's nodes of the trace: a node begins when those for which it waits have ended, and its queue is free.

Computations and memory take turns in one queue, and those on the host beside an accelerator in another, in the order in
which they become ready. Collective operations of one group follow each other, in an order that all members find from
their traces; those of different groups run side by side, as do messages. A message counts as sent when the network has
taken it.
"""

from __future__ import annotations

from collections import Counter, deque

from testbed.engine.collectives.operation import CollectiveMail, Tag
from testbed.engine.trace.collectives import Sizes, TraceCollectives
from testbed.job_trace.model import COLLECTIVE, COMPUTE, RECEIVE, SEND, RankTrace, TraceNode
from testbed.job_trace.order import followers, numbered, operations_of
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.world import Future, Work, World

_DEVICE = "device"
_HOST = "host"


class Player:
    """Plays one rank. A *place* is a node's position in the trace."""

    def __init__(
        self,
        plan: Plan,
        node: NodePlan,
        world: World,
        mail: CollectiveMail,
        trace: RankTrace,
        collectives: TraceCollectives,
    ) -> None:
        assert plan.traced is not None, "a worker plays a trace where the Plan has one"
        self._world = world
        self._mail = mail
        self._nodes = trace.nodes
        self._collectives = collectives
        self._workers = plan.traced.ranks
        self._sizes = Sizes(plan)
        self._rates = plan.traced.rates
        self._step_s = node.device.step_time_s * node.device.speed  # duration of a step at speed 1
        self._after, self._waits_for = followers(trace.nodes)
        self._numbers = numbered(trace.nodes)
        self._messages = Counter((each.kind, each.peer, each.tag) for each in trace.nodes)
        self._deadline_s = plan.timeouts.run_deadline_s
        place_of = {each.id: place for place, each in enumerate(trace.nodes)}
        self._operations = {
            group: [place_of[each.id] for each in nodes] for group, nodes in operations_of(trace).items()
        }
        self._has_accelerator = any(each.kind == COMPUTE and not each.on_host for each in trace.nodes)

    async def play(self, round_: int) -> None:
        """Play the trace once, and return when all nodes have ended."""
        self._round = round_
        self._missing = list(self._waits_for)
        self._left = len(self._nodes)
        self._ended: Future[None] = self._world.future()
        self._queues: dict[str, deque[int]] = {_DEVICE: deque(), _HOST: deque()}
        self._busy: set[str] = set()
        self._ready: set[int] = set()  # operations that wait for their turn
        self._turns = {group: deque(places) for group, places in self._operations.items()}
        for place, count in enumerate(self._waits_for):
            if not count:
                self._begin(place)
        await self._world.wait(self._ended, "the end of the trace", self._deadline_s)

    def _begin(self, place: int) -> None:
        """Begin a node that is ready, or queue it."""
        node = self._nodes[place]
        if node.kind == SEND:
            self._world.spawn(self._send(place), "a send")
        elif node.kind == RECEIVE:
            self._world.spawn(self._receive(place), "a receive")
        elif node.kind == COLLECTIVE:
            self._ready.add(place)
            if node.group not in self._busy:
                self._busy.add(node.group)
                self._world.spawn(self._operate(node.group), "operations of a group")
        else:
            queue = _HOST if node.on_host and self._has_accelerator else _DEVICE
            self._queues[queue].append(place)
            if queue not in self._busy:
                self._busy.add(queue)
                self._world.spawn(self._compute(queue), "computations")

    def _end(self, place: int) -> None:
        """Note that a node has ended, and begin the nodes that now wait for no other."""
        self._left -= 1
        if not self._left:
            self._ended.set_result(None)
        for other in self._after[place]:
            self._missing[other] -= 1
            if not self._missing[other]:
                self._begin(other)

    async def _compute(self, name: str) -> None:
        queue = self._queues[name]
        while queue:
            place = queue.popleft()
            node = self._nodes[place]
            steps = self._rates.duration_s(node) / self._step_s
            if steps and name == _DEVICE:
                await self._world.compute(Work("step", self._round, steps=steps, part=_part(node)), _nothing)
            elif steps:
                await self._world.sleep(self._world.pacer.duration_s(steps, self._world.now()))
            self._end(place)
        self._busy.remove(name)

    async def _operate(self, group: str) -> None:
        turns = self._turns[group]
        while turns and turns[0] in self._ready:
            place = turns.popleft()
            await self._collectives.run(self._nodes[place], self._round)
            self._end(place)
        self._busy.remove(group)

    async def _send(self, place: int) -> None:
        node = self._nodes[place]
        message = Message(MessageKind.COLLECTIVE, -1, self._round, parts=(self._sizes.of(node.size_bytes),))
        await self._mail.send(self._workers[node.peer], self._tag(place), self._mail.company, message)
        self._end(place)

    async def _receive(self, place: int) -> None:
        node = self._nodes[place]
        source = self._workers[node.peer]
        tag = self._tag(place)
        if self._mail.take(source, tag) is None:
            await self._mail.receive(source, tag)
        self._end(place)

    def _tag(self, place: int) -> Tag:
        node = self._nodes[place]
        each_round = self._messages[node.kind, node.peer, node.tag]  # the same number at the other end
        return Tag(f"tag {node.tag}", self._round * each_round + self._numbers[place], 0)


def _part(node: TraceNode) -> str:
    return f"node {node.id}"


def _nothing() -> None:
    pass
