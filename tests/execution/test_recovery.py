"""The attempts of a run that is restarted."""

from __future__ import annotations

import weakref
from pathlib import Path

from testbed.errors import NodeLost
from testbed.execution.recovery import Attempts
from tests.faults.runs import RESTART, plan_of


class Fleet:
    """What an attempt leaves: it refers to itself, as a fleet does through its callbacks."""

    def __init__(self) -> None:
        self.on_fault = self.stop

    def stop(self) -> None:
        raise NodeLost("east/worker0 was killed")


def test_what_a_lost_attempt_held_is_freed_before_the_next(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    earlier: list[weakref.ref[Fleet]] = []

    def once(_begin_s: float) -> None:
        assert not any(fleet() for fleet in earlier)
        fleet = Fleet()
        earlier.append(weakref.ref(fleet))
        if len(earlier) < 3:
            fleet.on_fault()

    with Attempts(plan_of(RESTART, on="local"), tmp_path, lambda event: None) as attempts:
        attempts.run(once)
    assert len(earlier) == 3
