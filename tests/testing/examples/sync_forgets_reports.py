"""Broken on purpose: workers' reports, from which the next steps follow, are in no checkpoint."""

from collections.abc import Mapping
from typing import Any

from testbed.policy.sync.esync import ESync


class ForgetsReports(ESync):
    """After a checkpoint, one report counts in place of three."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass
