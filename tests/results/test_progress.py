"""What a node tells the watcher of a run."""

from __future__ import annotations

from typing import Any

from testbed.results.progress import NodeProgress


def test_only_events_of_some_kinds_are_passed_on() -> None:
    lines: list[dict[str, Any]] = []
    node = NodeProgress("west/worker0", lines.append)
    node.pass_on("compute", 1.0, {"round": 0})
    node.pass_on("round", 2.0, {"round": 3, "loss": 0.5})
    assert lines == [{"kind": "round", "t": 2.0, "node": "west/worker0", "round": 3, "loss": 0.5}]


def test_the_status_has_the_last_round_the_bytes_and_the_longest_wait() -> None:
    lines: list[dict[str, Any]] = []
    node = NodeProgress("west/worker0", lines.append)
    node.pass_on("round", 2.0, {"round": 3, "loss": 0.5})
    node.up_bytes, node.down_bytes, node.activity = 10, 20, 7
    node.status(4.0, [("values of round 4", 2.5), ("a message", 3.0)])
    node.status(5.0, [])
    waiting, idle = lines[1:]
    assert waiting == {
        "kind": "status", "t": 4.0, "node": "west/worker0", "round": 3, "loss": 0.5, "wan_up_bytes": 10,
        "wan_down_bytes": 20, "waiting_for": "values of round 4",
        "waits": [("values of round 4", 2.5), ("a message", 3.0)], "activity": 7,
    }  # fmt: skip
    assert (idle["waiting_for"], idle["waits"]) == ("", [])
