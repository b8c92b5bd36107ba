"""Broken on purpose: which members have pushed is kept on the class, so that all servers of a process share it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier


class SharedState(SyncPolicy):
    """Synchronous rounds, without members that are lost."""

    _pushed: ClassVar[dict[tuple[int, int], set[str]]] = {}

    @dataclass(frozen=True, slots=True)
    class Options:
        """None."""

    def __init__(self, tier: Tier, options: Any) -> None:
        self._names = tier.names

    def on_push(self, push: Push) -> list[Effect]:
        where = (push.key, push.round)
        pushed = self._pushed.setdefault(where, set())
        pushed.add(push.member)
        if len(pushed) < len(self._names):
            return []
        del self._pushed[where]
        return [Aggregate(*where, self._names), Reply(push.key, (push.round,) * len(self._names), self._names)]

    def begin_at(self, round_: int) -> None:
        pass

    def on_member_lost(self, member: str) -> list[Effect]:
        return []

    def on_member_joined(self, member: str) -> int:
        return 0

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        pushed = self._pushed.get((key, round_), set())
        return tuple(name for name in self._names if pushed and name not in pushed)
