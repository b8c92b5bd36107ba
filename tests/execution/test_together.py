"""Jobs whose real nodes are watched by processes of their own: what they report, and how they end."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import Interrupted, NodeLost, RunFailed
from testbed.execution.deployment import STARTING, Deployment
from testbed.execution.together import ToldError, run_together
from testbed.plan.build import build_plan
from testbed.plan.jobs import Job
from testbed.scenario.load import load

PLAN = build_plan(load("quickstart"), "local")
Event = dict[str, Any]


def jobs(heard: dict[str, list[Event]], **starts_s: float) -> list[Deployment]:
    return [
        Deployment(Job(plan=PLAN, name=name, start_s=start_s), Path(name), heard.setdefault(name, []).append)
        for name, start_s in starts_s.items()
    ]


def test_each_job_reports_its_own_and_starts_when_its_time_has_come() -> None:
    heard: dict[str, list[Event]] = {}
    begin_s = time.monotonic()

    def run(deployment: Deployment) -> None:
        deployment.report({"kind": "stage", "pid": os.getpid(), "after_s": time.monotonic() - begin_s})

    assert run_together(jobs(heard, a=0.0, b=0.3), run) == [None, None]
    (a, end_of_a), (start_of_b, b, end_of_b) = heard.values()
    assert start_of_b == STARTING  # a job that starts with the network has heard it from the back end
    assert end_of_a == end_of_b == {"kind": "ended"}
    assert len({a["pid"], b["pid"], os.getpid()}) == 3
    assert b["after_s"] >= 0.3


def test_an_only_job_runs_in_this_process_and_its_error_is_the_one_that_was_raised() -> None:
    error = NodeLost("lost")

    def run(deployment: Deployment) -> None:
        deployment.report({"kind": "stage", "pid": os.getpid()})
        raise error

    heard: dict[str, list[Event]] = {}
    assert run_together(jobs(heard, a=0.0), run) == [error]
    assert heard["a"] == [{"kind": "stage", "pid": os.getpid()}]


def test_a_job_that_fails_or_dies_says_why_and_the_others_go_on() -> None:
    def run(deployment: Deployment) -> None:
        if deployment.job.name == "lost":
            error = NodeLost("tokyo/worker0 was lost")
            error.add_note("and where")
            raise error
        if deployment.job.name == "wrong":
            raise ZeroDivisionError("of nothing")
        if deployment.job.name == "dead":
            os.kill(os.getpid(), signal.SIGKILL)

    lost, wrong, dead, good = run_together(jobs({}, lost=0.0, wrong=0.0, dead=0.0, good=0.1), run)
    assert isinstance(lost, ToldError)
    assert (str(lost), lost.exit_code, lost.__notes__) == ("tokyo/worker0 was lost", NodeLost.exit_code, ["and where"])
    assert isinstance(wrong, ToldError)
    assert (str(wrong), wrong.exit_code) == (
        "ZeroDivisionError: of nothing (an error in testbed itself; see host.log)",
        1,
    )
    assert isinstance(dead, RunFailed)
    assert "ended with -9, without a message" in str(dead)
    assert good is None


def test_an_interrupt_reaches_all_jobs_which_end_in_good_order() -> None:
    """Also where SIGINT is ignored, as in the background of a shell: the host is told by its launcher there."""
    heard: dict[str, list[Event]] = {}

    def run(deployment: Deployment) -> None:
        try:
            deployment.report({"kind": "stage"})
            time.sleep(60)
        except KeyboardInterrupt:
            deployment.report({"kind": "end"})
            raise

    def interrupting(deployment: Deployment) -> Deployment:
        def take(event: Event) -> None:
            deployment.report(event)
            if event["kind"] == "stage" and all(heard.values()):
                raise KeyboardInterrupt

        return replace(deployment, report=take)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        errors = run_together([interrupting(each) for each in jobs(heard, a=0.0, b=0.0)], run)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [type(error) for error in errors] == [Interrupted, Interrupted]
    assert heard["a"] == heard["b"] == [{"kind": "stage"}, {"kind": "end"}, {"kind": "ended"}]


def test_what_a_listener_raises_ends_all_jobs() -> None:
    def refuse(event: Event) -> None:
        raise RunFailed("the links no longer follow the plan")

    def run(deployment: Deployment) -> None:
        deployment.report({"kind": "status"})
        time.sleep(60)

    deployments = [Deployment(Job(plan=PLAN, name=name), Path(name), refuse) for name in ("a", "b")]
    with pytest.raises(RunFailed, match="no longer follow"):
        run_together(deployments, run)
