"""Exits, causes and wait graphs."""

from __future__ import annotations

from testbed.errors import CapabilityError, RunFailed, WaitTimeout
from testbed.realtime.fleet_status import FleetStatus, NodeExit, first_cause


class TestWatch:
    def test_the_killed_node_explains_those_that_lost_it(self) -> None:
        lost = NodeExit("b", 4, cause="PeerLost", message="b lost a: gone")
        own = NodeExit("c", 1, cause="ValueError", message="nan")
        killed = NodeExit("a", -9)
        told = NodeExit("d", -15, stopped=True)
        assert first_cause([told, lost, own, killed]) is killed
        assert first_cause([told, lost, own]) is own
        assert first_cause([told, lost]) is lost
        assert first_cause([told, NodeExit("e", 0)]) is None

    def test_errors_name_node_and_cause(self) -> None:
        assert str(NodeExit("a", -9).error()) == "a was killed by signal 9, SIGKILL"
        assert str(NodeExit("a", -9, killer="by x").error()) == "a was killed by signal 9, SIGKILL (by x)"
        assert str(NodeExit("a", 130).error()) == "a got SIGTERM, which this run did not send"
        assert str(NodeExit("a", 3).error()) == "a ended with exit status 3 and without a message"
        assert isinstance(NodeExit("a", 3, cause="CapabilityError", message="m").error(), CapabilityError)
        assert str(NodeExit("c", 1, cause="ValueError", message="nan").error()) == "c: ValueError: nan"
        assert isinstance(NodeExit("c", 5, cause="WaitTimeout", wait=("c", "x", 1.0, 2.0)).error(), WaitTimeout)

    def test_a_status_that_a_script_has_chosen_is_not_one_of_ours(self) -> None:
        for status in range(1, 10):
            ended = NodeExit("a", status, explained=f"mine.py:3: os._exit: status {status}")
            assert type(ended.error()) is type(NodeExit("a", status).error()) is RunFailed

    def test_the_status_has_waits_and_the_time_of_the_last_progress(self) -> None:
        status = FleetStatus(100.0)
        line = {"node": "a", "waits": [["a push", 2.0]], "activity": 3}
        status.update(line, 101.0)
        status.update(line, 105.0)
        status.update({"node": "b", "waits": [], "activity": 0}, 106.0)
        assert status.advanced_at_s == 101.0
        assert status.longest_wait() == ("a", "a push", 2.0)
        assert status.wait_graph().splitlines() == [
            "a waits for a push since t = 2.000 s",
            "b waits for nothing: it computes, or does not run",
        ]


def test_a_run_that_goes_on_without_a_node_does_not_wait_for_what_that_waited_for() -> None:
    status = FleetStatus(0.0)
    status.update({"node": "a", "waits": [["a push", 2.0]], "activity": 30}, 1.0)
    status.update({"node": "b", "waits": [["a value", 9.0]], "activity": 3}, 1.0)
    status.end(NodeExit("a", -9, stopped=True), goes_on=True)
    assert status.longest_wait() == ("b", "a value", 9.0) and "a waits" not in status.wait_graph()
    status.update({"node": "a", "waits": [], "activity": 1}, 5.0)
    assert status.advanced_at_s == 5.0, "its successor counts from 0"
    status.end(NodeExit("b", -9))
    assert status.longest_wait() == ("b", "a value", 9.0), "who was lost last explains why the run has ended"


def test_of_lost_peers_the_first_to_be_noticed_explains_the_others() -> None:
    """The scheduler, which noticed, may end after those that only lost the scheduler."""
    followed = NodeExit("a/worker0", 1, cause="PeerLost", message="lost hub/scheduler", at_s=2.002)
    noticed = NodeExit("hub/scheduler", 1, cause="PeerLost", message="no sign of life", at_s=2.001)
    assert first_cause([followed, noticed]) is noticed
    assert first_cause([NodeExit("b/worker0", 1, cause="PeerLost"), followed]) is followed
