"""What the nodes of one group have in common, and how messages are handed to the right group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.engine.inbox import Handler, Mail
from testbed.messages import Message, MessageKind
from testbed.policy.overlay.events import Chunk, chunks_of
from testbed.world import World

CONTROL_PRIORITY = 1 << 20  # ASK and TELL overtake the transfers that they are about


@dataclass(frozen=True, slots=True)
class OverlayGroup:
    """A server, ``root``, and the children that contribute to it, in rank order."""

    root: str
    members: tuple[str, ...]
    chunk_bytes: int
    sums: bool  # whether relays add up what they pass on
    adapts: bool  # whether trees follow measured throughput

    def rank(self, node: str) -> int:
        """Return the rank of ``node``; −1 for the root."""
        return -1 if node == self.root else self.members.index(node)


@dataclass(slots=True)
class Chunks:
    """The chunks of one group, once its keys are declared."""

    of_key: dict[int, Chunk] = field(default_factory=dict)
    by_name: dict[int, Chunk] = field(default_factory=dict)

    @property
    def elements(self) -> dict[int, int]:
        """Elements of each chunk, by name."""
        return {name: sum(chunk.sizes.values()) for name, chunk in self.by_name.items()}

    def declare(self, sizes: Mapping[int, int], limit_bytes: int) -> None:
        """``sizes``: elements of the wire keys that live on the group's root."""
        for chunk in chunks_of(sizes, limit_bytes):
            self.by_name[chunk.name] = chunk
            self.of_key.update(dict.fromkeys(chunk.sizes, chunk))


class InterceptedMail:
    """Mail into which an overlay can insert messages (``deliver``), as if they had come from the network."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._before: dict[MessageKind, Handler] = {}
        self._handlers: dict[MessageKind, Handler] = {}

    def before(self, kind: MessageKind, handler: Handler) -> None:
        """Call ``handler`` with messages of ``kind`` before the handler that is registered with ``on`` later."""
        self._before[kind] = handler

    def on(self, kind: MessageKind, handler: Handler) -> None:
        """Hand messages of ``kind`` to ``handler``."""
        self._handlers[kind] = handler
        before = self._before.get(kind)

        def both(message: Message) -> None:
            if before is not None:
                before(message)
            handler(message)

        self._mail.on(kind, both)

    def deliver(self, message: Message) -> None:
        """Hand ``message`` to the handler of its kind."""
        self._handlers[message.kind](message)


class OverlayMail:
    """Hands messages to the group that they name by its root: a node may be the root of one and a member of others."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._handlers: dict[tuple[MessageKind, str], Handler] = {}
        self._kinds: set[MessageKind] = set()

    def on(self, kind: MessageKind, root: str, handler: Handler) -> None:
        """Hand messages of ``kind`` in the group of ``root`` to ``handler``."""
        self._handlers[kind, root] = handler
        if kind not in self._kinds:
            self._kinds.add(kind)
            self._mail.on(kind, self._dispatch)

    def _dispatch(self, message: Message) -> None:
        self._handlers[message.kind, message.meta["root"]](message)


class ThroughputMeter:
    """Measures the throughput of transfers that arrive at this node: payload bytes over seconds.

    A transfer begins when it was sent or, if others from that sender were still arriving then, at the end of those:
    the time in the sender's queue is no property of the link.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._last_s: dict[str, float] = {}

    def bytes_per_s(self, message: Message) -> float:
        """Return the throughput of a transfer that has arrived just now; to be called once for each."""
        now_s = self._world.now()
        begin_s = max(message.sent_at_s, self._last_s.get(message.sender, 0.0))
        self._last_s[message.sender] = now_s
        return round(message.payload_bytes / max(now_s - begin_s, 1e-6), 1)
