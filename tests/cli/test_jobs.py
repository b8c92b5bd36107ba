"""``testbed run`` of a file with several jobs: a run for each that every other verb opens, and a summary of all."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.jobs import load_jobs
from analysis.load import load_run
from analysis.report.conclusion import of_one
from testbed.results.rundir import is_run, open_run
from tests.cli.forked import Ended, command

FILE = "shared/two-jobs"
SHORT = ("--set", "jobs.star.training.rounds=3", "--set", "jobs.star.training.evaluate_every=3")
SHORT += ("--set", "jobs.ring.training.rounds=3", "--set", "jobs.ring.training.evaluate_every=3")
SHORT += ("--set", "jobs.ring.start=1 s")


def simulate_jobs_here() -> None:
    """Let the command simulate in its own process: a new one takes three seconds to begin."""
    from testbed.execution import host, session
    from testbed.execution.deployment import Ground, read_ground

    def run_jobs(ground: Ground, early: object = None) -> list[session.SessionResult]:
        return host.attempt_jobs(read_ground(ground.directory, ground.take))

    session.run_jobs = run_jobs  # type: ignore[assignment]


def interrupt_while_results_are_written() -> None:
    from testbed import launch_jobs

    simulate_jobs_here()
    finish = launch_jobs.finish

    def finish_interrupted(*arguments: Any, **how: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return finish(*arguments, **how)

    launch_jobs.finish = finish_interrupted


def interrupt_runs_alone() -> None:
    from testbed.execution import session

    simulate_jobs_here()
    together = session.run_jobs

    def run_jobs(ground: Any, early: object = None) -> Any:
        if len(ground.deployments) > 1:
            return together(ground, None)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("which the signal leaves no time for")

    session.run_jobs = run_jobs


def run(*arguments: str, prepare: Callable[[], None] = simulate_jobs_here) -> Ended:
    return command(["run", FILE, *SHORT, *arguments], prepare=prepare)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    directory = tmp_path_factory.mktemp("jobs") / "run"
    return directory, run("--out", str(directory))


def test_every_job_has_a_run_of_its_own_and_the_whole_a_summary(jobs: tuple[Path, Ended]) -> None:
    directory, ended = jobs
    assert ended.returncode == 0, ended.stderr
    for place in ("jobs/star", "jobs/ring"):
        assert open_run(directory / place).status().state == "done", place
        assert (directory / place / "summary.txt").is_file()
    assert "star: training: 6 workers, at most 3 rounds" in ended.stdout
    times_s = [float(found) for found in re.findall(r"\[virtual +([0-9.]+) s\]", ended.stdout)]
    assert len(times_s) >= 6
    assert times_s == sorted(times_s)
    assert "[virtual     1.00 s] ring: starting nodes" in ended.stdout
    summary = (directory / "summary.txt").read_text()
    assert "two-jobs on simulate: 2 jobs on one network" in summary
    assert "messages over the links" in summary
    stored = load_jobs(directory)
    for job in stored.jobs.values():  # the interval of exact rounds was measured on jobs alone
        assert job.result is not None
        assert "round_s" not in job.result
    assert "exact:" not in (directory / "jobs" / "star" / "summary.txt").read_text()
    assert stored.starts_s == {"star": 0.0, "ring": 1.0}
    assert stored.longer("ring") is None


@pytest.mark.slow  # 10 s
def test_each_job_is_run_by_itself_to_see_how_much_longer_its_rounds_take(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    ended = run("--out", str(directory), "--alone")
    assert ended.returncode == 0, ended.stderr
    stored = load_jobs(directory)
    for name, stored_run in stored.jobs.items():
        longer = stored.longer(name)
        assert longer is not None
        assert longer > 1, name
        assert open_run(directory / "alone" / name).status().state == "done"
        alone, together = stored.alone[name].result, stored_run.result
        assert alone is not None
        assert together is not None
        assert alone["parameters_sha256"] == together["parameters_sha256"]
    assert f"{stored.longer('ring'):.2f} ×" in (directory / "summary.txt").read_text()


def test_bytes_are_told_by_link_and_job_and_who_left_least_to_whom(jobs: tuple[Path, Ended]) -> None:
    stored = load_jobs(jobs[0])
    star, ring = stored.sent("star"), stored.sent("ring")
    assert set(ring) == {"virginia>tokyo", "tokyo>virginia"}
    assert "virginia>frankfurt" in star
    moved = stored.jobs["ring"].result
    told = sum(
        sum(moved[key]["tokyo"].values()) for key in ("wan_payload_bytes", "wan_header_bytes", "wan_setup_bytes")
    )
    assert sum(ring.values()) == told
    crowded = stored.crowded("ring")
    assert crowded is not None
    assert crowded.by == "star"
    window = (0.0, 1e9)
    assert 0 < crowded.others < 1
    assert stored.sent("ring", *window) == ring
    assert not stored.sent("ring", 1e9, 2e9)


def test_finished_jobs_are_not_repeated_and_other_verbs_open_them(jobs: tuple[Path, Ended]) -> None:
    directory, _ = jobs
    again = run("--out", str(directory))
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True), again.stderr
    shown = command(["show", str(directory), "--json"])
    about = json.loads(shown.stdout)
    assert set(about["jobs"]) == {"star", "ring"}
    assert about["sent_bytes"]["ring"].keys() == {"virginia>tokyo", "tokyo>virginia"}
    assert command(["show", str(directory / "jobs" / "ring")]).returncode == 0
    one = command(["events", str(directory)])
    assert (one.returncode, f"name the run of one of them, {directory}/jobs/NAME" in one.stderr) == (2, True), (
        one.stderr
    )
    page = directory / "page.html"
    assert command(["view", str(directory), "--save", str(page)]).returncode == 0
    assert "ring" in page.read_text()
    out = directory / "compared"
    compared = command(["compare", str(directory), "--out", str(out)])
    assert compared.returncode == 0, compared.stderr
    assert "star" in compared.stdout
    assert "ring shared its network with star" in " ".join(compared.stdout.split())
    report = directory / "star.html"
    assert command(["report", str(directory / "jobs" / "star"), "--out", str(report)]).returncode == 0
    assert "Bytes of ring on the same network are included." in report.read_text()
    told = of_one(load_run(directory / "jobs" / "star"))
    assert "star shared its network with ring, whose bytes its links carried, too. Nothing else speaks against" in told


def test_no_job_is_run_by_itself_after_an_interrupt_while_results_are_written(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    ended = run("--out", str(directory), "--alone", prepare=interrupt_while_results_are_written)
    assert ended.returncode == 130, ended.stderr
    assert open_run(directory / "jobs" / "ring").status().state == "done"
    assert not (directory / "alone").exists()
    assert "star alone: not run: the command was interrupted" in ended.stderr


def test_an_interrupted_run_alone_is_the_last_and_is_not_compared_with(
    jobs: tuple[Path, Ended], tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(jobs[0], directory)
    ended = run("--out", str(directory), "--alone", prepare=interrupt_runs_alone)
    assert "what is missing is run: star alone, ring alone" in ended.stdout
    assert ended.returncode == 130, ended.stderr
    assert open_run(directory / "alone" / "star").status().state == "interrupted"
    assert not is_run(directory / "alone" / "ring")
    assert "ring alone: not run" in ended.stderr
    assert "×" not in ended.stdout
    assert load_jobs(directory).longer("star") is None


def test_a_directory_of_other_rounds_is_not_these_jobs(jobs: tuple[Path, Ended]) -> None:
    ended = run("--out", str(jobs[0]), "--set", "jobs.star.training.rounds=4")
    assert (ended.returncode, "holds the run of other jobs" in ended.stderr) == (2, True), ended.stderr


def test_validate_tells_where_each_job_trains_and_options_for_one_run_are_refused(tmp_path: Path) -> None:
    told = command(["validate", FILE])
    assert told.returncode == 0, told.stderr
    assert "ring: 3 nodes in virginia, tokyo, from 5 s on" in told.stdout
    refused = command(["run", FILE, "--resume", str(tmp_path)])
    assert refused.returncode == 2
    assert "--resume: is for a scenario without 'jobs'; leave it out" in refused.stderr
    alone = command(["run", "quickstart", "--alone"])
    assert "--alone: has no effect on a scenario without 'jobs'" in alone.stderr
