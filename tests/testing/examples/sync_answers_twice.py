"""Broken on purpose: the first member of every round is answered twice."""

from dataclasses import dataclass
from typing import Any

from testbed.policy.events import Effect, Push, Reply
from testbed.policy.sync.fsa import Fsa


class AnswersTwice(Fsa):
    """FSA with a second reply."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """None."""

    def on_push(self, push: Push) -> list[Effect]:
        effects = super().on_push(push)
        replies: list[Any] = [effect for effect in effects if isinstance(effect, Reply)]
        return [*effects, *(Reply(each.key, each.rounds[:1], each.members[:1]) for each in replies)]
