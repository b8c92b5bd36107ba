"""``testbed events``: order, selection, and a run in progress."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from testbed.cli.main import main
from testbed.results.events import EventLog
from testbed.results.rundir import claim
from tests.results.fake_run import make_run


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_events_come_in_the_order_of_time_and_can_be_selected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run(tmp_path / "run"))
    assert main(["events", run]) == 0
    every = printed(capsys)
    times = [event["t"] for event in every]
    assert times == sorted(times) and len(every) > 500  # type: ignore[type-var]
    assert main(["events", run, "--kind", "round,evaluate", "--node", "tokyo/worker1,virginia/worker0"]) == 0
    some = printed(capsys)
    assert some == [event for event in every if event["kind"] in ("round", "evaluate")
                    and event["node"] in ("tokyo/worker1", "virginia/worker0")]  # fmt: skip
    assert {event["kind"] for event in some} == {"round", "evaluate"}


def test_a_run_in_progress_is_followed_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = claim(tmp_path / "run", "a" * 64)
    run.set_status("running", "a" * 64)
    log = EventLog(run.events, "a/worker0")
    log.write("start", 0.0)
    log.flush()

    def end() -> None:
        log.write("final", 5.0)
        log.close()
        run.set_status("done", "a" * 64)

    timer = threading.Timer(0.3, end)
    timer.start()
    assert main(["events", str(run.path), "--follow"]) == 0
    timer.join()
    assert [event["kind"] for event in printed(capsys)] == ["start", "final"]
