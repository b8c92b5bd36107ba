"""Best-effort channels: sizes on the wire, the queue of a sender, and its rate. Both worlds use this module.

A message on a channel above 0 travels in datagrams that each fit into one Ethernet frame, so that IP does not fragment
them. A message is lost if one of its datagrams is lost. A datagram is a prefix (connection, sequence number of the
message, channel, index, count), a piece of the message, and an authentication code over both. A message is the length
of its header, its header (``testbed.messages``) and the bytes of its tensors.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

from testbed.ids import data_center_of
from testbed.messages import Message, encode_header
from testbed.plan.model import Plan

DATAGRAM_BYTES = 1472  # UDP payload of an Ethernet frame: 1500 less IPv4's 20 and UDP's 8
PREFIX_BYTES = 19
MAC_BYTES = 16
PIECE_BYTES = DATAGRAM_BYTES - PREFIX_BYTES - MAC_BYTES
FRAME_OVERHEAD_BYTES = 42  # Ethernet 14, IPv4 20, UDP 8
LENGTH_BYTES = 2  # of the header
MAX_PIECES = 255
MAX_MESSAGE_BYTES = MAX_PIECES * PIECE_BYTES

QUEUE_LIMIT_BYTES = 64 << 20
TOO_MUCH = "too much queued"
# Share of the slowest link's rate. A slower sender fills no queue, so reliable traffic does not wait behind it.
PACE_SHARE = 0.97

T = TypeVar("T")


def piece_count(size_bytes: int) -> int:
    """Return the number of datagrams of a message of that size."""
    return max(1, -(-size_bytes // PIECE_BYTES))


def best_effort_overhead_bytes(message: Message) -> int:
    """Return the bytes in UDP payloads that are not the message's tensors."""
    header = LENGTH_BYTES + len(encode_header(message))
    return header + piece_count(header + message.payload_bytes) * (PREFIX_BYTES + MAC_BYTES)


def datagrams(message: Message) -> tuple[int, int]:
    """Return the number of datagrams of a message, and the bytes of their Ethernet frames, which links count."""
    size = LENGTH_BYTES + len(encode_header(message)) + message.payload_bytes
    count = piece_count(size)
    return count, framed_bytes(size, count)


def framed_bytes(size_bytes: int, count: int) -> int:
    """Return the bytes of the Ethernet frames of a message of ``size_bytes`` in ``count`` datagrams."""
    return size_bytes + count * (PREFIX_BYTES + MAC_BYTES + FRAME_OVERHEAD_BYTES)


def type_of_service(channel: int, channels: int) -> int:
    """Return the IP header's second byte for a channel: the precedence, its upper three bits, is channels − channel."""
    return (channels - channel) * 32


def pace_bps(plan: Plan, source: str, target: str) -> float:
    """Return the rate of best-effort messages from ``source`` to ``target``, in bits of Ethernet frames per second.

    It is ``PACE_SHARE`` of the slowest planned link on the path, divided by the number of nodes in the same data centre
    that push to the same servers. A node sends its pushes to the servers of one data centre one after another.
    """
    here = plan.site(data_center_of(source))
    there = plan.site(data_center_of(target))
    rates = [here.lan_rate_bps, there.lan_rate_bps]
    if here != there and plan.has_wan:
        links = {link.name: link.rate_bps for link in plan.network.links}
        rates += [links[name] for name in plan.network.between(here.name, there.name)]
    parents = plan.node(source).parents
    senders = [node for node in plan.nodes if parents and node.data_center == here.name and node.parents == parents]
    return PACE_SHARE * min(rates) / max(1, len(senders))


class BestEffortQueue(Generic[T]):
    """Unsent messages to one peer. Lower channels are sent first; each channel is first in, first out.

    Two rules drop messages, which ``dropped`` counts. Beyond ``limit_bytes``, the oldest message of the highest channel
    is dropped. A message two rounds older than the latest queued one of its key is dropped, as its round is closed.
    """

    def __init__(self, limit_bytes: int = QUEUE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._channels: dict[int, deque[tuple[T, int, int, int]]] = {}
        self._latest: dict[int, int] = {}
        self.queued_bytes = 0
        self.dropped: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._channels.values()))

    def post(self, item: T, message: Message, size_bytes: int) -> None:
        """Queue ``item``, which stands for ``message``, of ``size_bytes``."""
        key = message.key
        round_ = message.round
        self._latest[key] = max(round_, self._latest.get(key, round_))
        self._channels.setdefault(message.channel, deque()).append((item, key, round_, size_bytes))
        self.queued_bytes += size_bytes
        while self.queued_bytes > self._limit_bytes:
            highest = max(channel for channel, waiting in self._channels.items() if waiting)
            self._take(highest)
            self.dropped[TOO_MUCH] += 1

    def pop(self) -> tuple[T, int] | None:
        """Return the next item to send and its channel; ``None`` when the queue is empty."""
        for channel in sorted(self._channels):
            while self._channels[channel]:
                item, key, round_ = self._take(channel)
                if round_ >= self._latest[key] - 1:
                    return item, channel
                self.dropped["too old"] += 1
        return None

    def _take(self, channel: int) -> tuple[T, int, int]:
        item, key, round_, size_bytes = self._channels[channel].popleft()
        self.queued_bytes -= size_bytes
        return item, key, round_

    def clear(self) -> None:
        self._channels.clear()
        self.queued_bytes = 0
