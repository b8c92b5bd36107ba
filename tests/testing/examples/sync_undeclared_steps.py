"""Broken on purpose: replies assign local steps, and the class does not declare it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.policy.events import Contribution
from testbed.policy.sync.base import Tier
from testbed.policy.sync.fsa import Fsa


class UndeclaredSteps(Fsa):
    """Averages models, and lets every worker do three steps from the second round on."""

    contribution = Contribution.MODEL

    @dataclass(frozen=True, slots=True)
    class Options:
        """None."""

    def __init__(self, tier: Tier, options: Any) -> None:
        super().__init__(tier, options)
        self._workers = [worker.name for member in tier.members for worker in member.workers]

    def _steps(self) -> Mapping[str, int]:
        return dict.fromkeys(self._workers, 3)
