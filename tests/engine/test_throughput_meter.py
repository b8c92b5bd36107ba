"""Row 57: throughput is payload over wall time, and a queue at the sender is no property of the link."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import torch

from testbed.engine.overlay.group import ThroughputMeter
from testbed.messages import Message, MessageKind
from testbed.world import World


def arrived(sender: str, began_s: float, elements: int) -> Message:
    message = Message(MessageKind.MERGE, 0, 0, parts=(torch.zeros(elements),))
    message.sender, message.began_s, message.sent_at_s = sender, began_s, began_s + 50.0  # its own clock
    return message


def test_bytes_over_the_time_that_a_transfer_took() -> None:
    clock = SimpleNamespace(now=lambda: 3.0)
    speed = ThroughputMeter(cast(World, clock))
    assert speed.bytes_per_s(arrived("east/server0", 1.0, 1000)) == 4000 / 2.0


def test_time_in_a_queue_behind_others_of_the_same_sender_does_not_count() -> None:
    """Three were sent at once over a link of 1000 bytes per second; another sender's has its own time."""
    clock = SimpleNamespace(now=lambda: clock.time_s, time_s=0.0)
    speed = ThroughputMeter(cast(World, clock))
    seen = []
    for clock.time_s in (4.0, 8.0, 12.0):
        seen.append(speed.bytes_per_s(arrived("east/server0", 0.0, 1000)))
    assert seen == [1000.0, 1000.0, 1000.0]
    assert speed.bytes_per_s(arrived("west/server0", 0.0, 3000)) == 1000.0
