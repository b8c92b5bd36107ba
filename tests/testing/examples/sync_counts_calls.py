"""Broken on purpose: the local steps of a round depend on how often they were asked for."""

from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.events import Contribution
from testbed.policy.sync.fsa import Fsa


class CountsCalls(Fsa):
    """Averages models after more and more steps."""

    contribution = Contribution.MODEL
    _calls: ClassVar[list[int]] = []

    @dataclass(frozen=True, slots=True)
    class Options:
        """None."""

    @classmethod
    def local_steps(cls, options: Any, round_: int) -> int:
        cls._calls.append(round_)
        return 1 + len(cls._calls) // 10
