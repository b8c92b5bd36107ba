"""The interface of objects that follow a run in progress and may end it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.execution.session import SessionResult
from testbed.plan.model import Plan

Event = Mapping[str, Any]


class Follower:
    """Takes the progress events of a run; the base of callbacks and live logs."""

    def start(self, plan: Plan, directory: Path) -> None:
        """The run is about to start in this run directory."""

    def take(self, event: Event) -> Iterable[str]:
        """Take an event and return warnings. Raise ``KeyboardInterrupt`` to end the run."""
        return ()

    def outcome(self, outcome: SessionResult) -> SessionResult:
        """Return how the run has ended: as ``outcome`` says, unless the follower ended it."""
        return outcome

    def end(self, directory: Path) -> None:
        """The results have been written."""
