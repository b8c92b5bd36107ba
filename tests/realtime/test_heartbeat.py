"""Failure detection by heartbeats."""

from __future__ import annotations

from testbed.plan.model import monitor_of
from testbed.realtime.heartbeat import Liveness
from tests.contract.tiny import REMOTE, WORKER, tiny_plan


class TestLiveness:
    def test_silence_is_death_after_its_limit(self) -> None:
        liveness = Liveness(1.0, 10.0)
        heard = {"a": 0.0, "b": 8.0}
        assert [liveness.silent(heard, float(now)) for now in range(9, 12)] == [[], [], ["a"]]

    def test_no_peer_counts_as_silent_after_this_node_was_stopped(self) -> None:
        liveness = Liveness(1.0, 10.0)
        assert liveness.silent({"a": 0.0}, 1.0) == []
        assert liveness.silent({"a": 0.0}, 60.0) == []
        assert [liveness.silent({"a": 0.0}, 60.0 + n) for n in range(1, 12)][-2:] == [[], ["a"]]

    def test_the_monitor_is_the_scheduler_if_there_is_one(self) -> None:
        assert monitor_of(tiny_plan([WORKER, "east/scheduler"])) == "east/scheduler"
        assert monitor_of(tiny_plan([WORKER, REMOTE])) == WORKER
