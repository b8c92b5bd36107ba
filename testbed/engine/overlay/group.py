"""What the nodes of one group have in common, and how their mail finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.engine.inbox import Handler, Mail
from testbed.messages import Kind, Message
from testbed.policy.overlay.events import Chunk, chunks_of

CONTROL_PRIORITY = 1 << 20  # words about transfers overtake the transfers


@dataclass(frozen=True, slots=True)
class Group:
    """A server, ``root``, and the children that contribute to it, in rank order."""

    root: str
    members: tuple[str, ...]
    chunk_bytes: int
    sums: bool  # whether relays add up what they pass on


@dataclass(slots=True)
class Chunks:
    """The chunks of one group, once its keys are declared."""

    of_key: dict[int, Chunk] = field(default_factory=dict)
    by_name: dict[int, Chunk] = field(default_factory=dict)

    def declare(self, sizes: Mapping[int, int], limit_bytes: int) -> None:
        """``sizes``: elements of the wire keys that live on the group's root."""
        for chunk in chunks_of(sizes, limit_bytes):
            self.by_name[chunk.name] = chunk
            self.of_key.update(dict.fromkeys(chunk.sizes, chunk))


class Tapped:
    """Mail whose handlers can also be called from here, as if their message had come by itself."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._before: dict[Kind, Handler] = {}
        self._handlers: dict[Kind, Handler] = {}

    def before(self, kind: Kind, handler: Handler) -> None:
        """Let ``handler`` see messages of ``kind`` before the one that is registered later."""
        self._before[kind] = handler

    def on(self, kind: Kind, handler: Handler) -> None:
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
    """A node may be the root of one group and a member of others: their messages name the root."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._handlers: dict[tuple[Kind, str], Handler] = {}
        self._kinds: set[Kind] = set()

    def on(self, kind: Kind, root: str, handler: Handler) -> None:
        """Hand messages of ``kind`` in the group of ``root`` to ``handler``."""
        self._handlers[kind, root] = handler
        if kind not in self._kinds:
            self._kinds.add(kind)
            self._mail.on(kind, self._dispatch)

    def _dispatch(self, message: Message) -> None:
        self._handlers[message.kind, message.meta["root"]](message)


def bytes_per_s(message: Message, now_s: float) -> float:
    """Payload over wall time, from the sender's ``send`` to its arrival here."""
    return round(message.payload_bytes / max(now_s - message.sent_at_s, 1e-6), 1)
