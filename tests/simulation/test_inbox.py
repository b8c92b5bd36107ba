"""The receiving side of a simulated node that pauses."""

from __future__ import annotations

from functools import partial

from testbed.messages import Message, MessageKind
from testbed.plan.pace import Pacer
from testbed.simulation.clock import Clock
from testbed.simulation.envelope import Envelope
from testbed.simulation.inbox import SimulatedInbox
from testbed.simulation.node import SimulatedNode
from testbed.simulation.recorder import VirtualRecorder
from tests.contract.tiny import NEIGHBOUR, WORKER, tiny_plan
from tests.for_each import for_each
from tests.simulation.test_predicted_transfer import NullLog

ARRIVALS_S = (1.0, 1.5, 2.5, 4.0)


@for_each(
    ("pauses", "taken_s"),  # when a pause begins, and when it ends
    [
        ([(0.5, 2.0)], [2.0, 2.0, 2.5, 4.0]),
        ([(0.5, 2.0), (1.25, 3.0)], [3.0, 3.0, 3.0, 4.0]),
        ([(0.5, 2.0), (1.25, 4.0)], [4.0] * 4),
    ],
)
def test_messages_are_taken_in_the_order_of_arrival(pauses: list[tuple[float, float]], taken_s: list[float]) -> None:
    clock, taken = Clock(), []
    node = SimulatedNode(WORKER, Pacer(tiny_plan([WORKER]).nodes[0].device, 1, WORKER))
    recorder = VirtualRecorder(WORKER, NullLog(), lambda event: None, lambda kind, fields: None, frozenset())
    inbox = SimulatedInbox(node, clock, recorder, 0.0)

    def take(message: Message) -> bool:
        taken.append((message.key, clock.now))
        return True

    def pause(until_s: float, _: None) -> None:
        node.paused_until_s = max(node.paused_until_s, until_s)

    inbox.serve(take)
    for begin_s, end_s in pauses:
        clock.at(begin_s, partial(pause, end_s))
    for key, at_s in enumerate(ARRIVALS_S):
        envelope = Envelope(Message(MessageKind.PUSH, key, sender=NEIGHBOUR), 1, 1, inbox, "lan")
        clock.at(at_s, inbox.deliver, envelope)
    clock.run()
    assert taken == list(enumerate(taken_s))
