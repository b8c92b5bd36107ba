"""Who may have a run directory, and what becomes of crashed ones."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.results import rundir
from testbed.results.rundir import AlreadyDone, RunDirectory, claim

PLAN, OTHER = "a" * 64, "b" * 64


def crashed(path: Path) -> RunDirectory:
    """A directory whose owner was killed while it ran."""
    code = (
        f"from pathlib import Path; from testbed.results.rundir import claim; r = claim(Path({str(path)!r}), {PLAN!r})"
    )
    subprocess.run([sys.executable, "-c", code + f"; r.set_status('running', {PLAN!r})"], check=True, timeout=30)
    return RunDirectory(path)


def test_names_sort_by_time_and_differ_by_token() -> None:
    path = rundir.new_path("quickstart", datetime(2025, 3, 1, 14, 5, 2), "9f3a")
    assert path == Path("runs/2025-03-01-140502-quickstart-9f3a")


def test_a_fresh_directory_is_pending_and_mine(tmp_path: Path) -> None:
    run = claim(tmp_path / "deep" / "run", PLAN)
    assert run.status().state == "pending"
    assert run.events.is_dir()


def test_a_folder_of_somebody_else_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ScenarioError, match=r"not empty and not a run directory \(it holds 'thesis.tex'\)"):
        claim(tmp_path, PLAN)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ScenarioError, match="cannot make the run directory"):
        claim(tmp_path / "run", PLAN)


def test_a_live_run_is_refused_with_its_process(tmp_path: Path) -> None:
    claim(tmp_path / "run", PLAN).set_status("running", PLAN)
    with pytest.raises(ScenarioError, match=r"is in use by the run of process \d+"):
        claim(tmp_path / "run", PLAN, again=True)


@pytest.mark.parametrize("state", ["done", "degraded"])
def test_a_finished_run_is_done_once(tmp_path: Path, state: str) -> None:
    claim(tmp_path / "run", PLAN).set_status(state, PLAN)
    with pytest.raises(AlreadyDone):
        claim(tmp_path / "run", PLAN)
    with pytest.raises(ScenarioError, match="finished run of another plan"):
        claim(tmp_path / "run", OTHER)
    assert claim(tmp_path / "run", OTHER, again=True).status().plan_sha256 == OTHER


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_an_unfinished_run_is_started_anew_but_notes_stay(tmp_path: Path, state: str) -> None:
    run = claim(tmp_path / "run", PLAN)
    run.set_status(state, PLAN)
    (run.events / "tokyo.worker0.0000.jsonl.gz").write_text("{}\n")
    (run.path / "notes.md").write_text("mine")
    claim(tmp_path / "run", PLAN)
    assert list(run.events.iterdir()) == []
    assert (run.path / "notes.md").read_text() == "mine"


def test_a_crashed_run_is_seen_replaced_and_buried(tmp_path: Path) -> None:
    run = crashed(tmp_path / "run")
    assert run.status().state == "crashed"
    assert rundir.close_crashed(run) == "failed"
    assert run.status().state == "failed"
    assert rundir.close_crashed(run) is None
    again = crashed(tmp_path / "other")
    assert claim(again.path, PLAN).status().state == "pending"


def test_a_run_that_crashed_after_its_result_keeps_its_word(tmp_path: Path) -> None:
    run = crashed(tmp_path / "run")
    run.file("result.json").write_text(json.dumps({"status": "done"}))
    assert rundir.close_crashed(run) == "done"


def test_two_claimants_at_once_one_wins(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from testbed.results.rundir import claim\n"
        f"try: claim(Path({str(tmp_path / 'run')!r}), {PLAN!r}).set_status('running', {PLAN!r})\n"
        "except Exception as error: print('refused', error); sys.exit()\n"
        "print('won', flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    claimants = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(4)]  # type: ignore[call-overload]
    words = [claimant.stdout.readline().split()[0] for claimant in claimants]
    for claimant in claimants:
        claimant.communicate(timeout=30)
    assert sorted(words) == ["refused"] * 3 + ["won"]


def test_only_runs_are_opened_and_found(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="not a run directory"):
        rundir.open_run(tmp_path)
    claim(tmp_path / "b", PLAN)
    claim(tmp_path / "a", PLAN)
    (tmp_path / "c").mkdir()
    assert [run.path.name for run in rundir.find_runs(tmp_path)] == ["a", "b"]
