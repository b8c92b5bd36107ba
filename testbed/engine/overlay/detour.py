"""Messages that go to a member through another one, around a link with a long queue (NetStorm's auxiliary routes)."""

from __future__ import annotations

from testbed.engine.overlay.group import OverlayGroup
from testbed.messages import Message
from testbed.policy.overlay.netstorm import Detours
from testbed.world import World


def addressed(
    world: World, group: OverlayGroup, detours: Detours | None, to: str, message: Message
) -> tuple[str, Message]:
    """Return the node that the message is sent to, and the message, which names its final target if that is another."""
    meta = {name: value for name, value in message.meta.items() if name != "on_to"}
    if detours is not None:
        via = detours.way(group.rank(to), message.payload_bytes, world.now())
        if via != group.rank(to):
            to, meta["on_to"] = group.members[via], to
    return to, _with_meta(message, meta)


def passed_on(world: World, message: Message) -> bool:
    """Send a message on that is for another node. Return whether it was."""
    to = message.meta.get("on_to")
    if to is None or to == world.node:
        return False
    world.spawn(world.send(to, _with_meta(message, {**message.meta, "on_to": to})), "pass on")
    return True


def _with_meta(message: Message, meta: dict[str, object]) -> Message:
    return Message(message.kind, message.key, message.round, meta, message.parts, message.priority)
