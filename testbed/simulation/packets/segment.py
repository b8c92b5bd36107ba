"""What TCP sends: segments, and acknowledgements of them."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import msgspec

SEGMENT_BYTES = 1448  # of payload: MTU 1500 less IP's 20 and TCP's 32 bytes of headers, with timestamps
HEADER_BYTES = 66  # of a frame: Ethernet's 14, IP's 20, TCP's 32


def take_messages(ends: deque[list[Any]], size_bytes: int) -> list[Any]:
    """Take the next ``size_bytes`` from an unsent stream. Return the messages that end within them.

    ``ends``: [bytes of the stream up to the message's end, message], in order; those that stay are counted anew.
    """
    messages = []
    while ends and ends[0][0] <= size_bytes:
        messages.append(ends.popleft()[1])
    for end in ends:
        end[0] -= size_bytes
    return messages


class DeliveryState(NamedTuple):
    """What ``DeliveryRate`` notes when a segment is sent: how many segments had been delivered, when the last of them
    was, and when the first of those under way was sent."""

    delivered: int
    delivered_s: float
    first_sent_s: float
    application_limited: bool


class TcpSegment(msgspec.Struct, eq=False):
    """One segment, as its sender keeps it until it is acknowledged.

    number       in the order of the stream
    size_bytes   of payload
    pushed       nothing more was to be sent behind it (TCP's PSH)
    messages     those that end in it
    sent_s       when it was last sent
    sacked       acknowledged beyond a gap
    lost         marked as lost, and not acknowledged
    again        its retransmission is under way
    resent       it has been sent more than once
    delivery     noted by ``DeliveryRate``
    """

    number: int
    size_bytes: int
    pushed: bool
    messages: list[Any]
    sent_s: float = 0.0
    sacked: bool = False
    lost: bool = False
    again: bool = False
    resent: bool = False
    delivery: DeliveryState | None = None


class Acknowledgement(NamedTuple):
    """``next_number``: of the first segment that is missing. ``beyond``: how many segments have arrived behind gaps
    until now, in the order of ``TcpReceiver.beyond``. ``echo_s``: when the first segment that it acknowledges in order
    was sent (RFC 7323, 4.3); infinite: there is none. ``duplicate``: the segment that it answers had arrived before."""

    next_number: int
    beyond: int
    echo_s: float
    duplicate: bool
