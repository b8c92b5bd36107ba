"""What the command refuses before any work: options without effect, numbers, places; and what it never overwrites."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import main
from testbed.results import atomic
from testbed.results.rundir import RunDirectory
from tests.for_each import for_each
from tests.results.fake_run import make_run

QUICKSTART = str(Path(__file__).parents[2] / "scenarios" / "quickstart.yaml")


@for_each(
    ("argv", "said"),
    [
        (["run", QUICKSTART, "--again"], "--again: has no effect without --out"),
        (["check", "stale", "--axis", "figure", "--set", "a=1"], "--set: has no effect on the axis figure"),
        (["report", "runs/one", "--out", "a.pdf"], "--out a.pdf: a report is an HTML page; write a.html"),
        (["plan", QUICKSTART, "--table", "--json"], "--table: has no effect with --json"),
        (["shell", QUICKSTART, "--json"], "--json: has no effect on a shell"),
        (["validate-sim", QUICKSTART, "--jobs", "-1"], "--jobs -1: at least 1"),
        (["validate-sim", QUICKSTART, "--warm-up", "-1"], "--warm-up -1: at least 0"),
        (["validate-sim", QUICKSTART, "--warm-up", "30"], "--warm-up 30: of 30 rounds, none is left to be compared"),
    ],
)
def test_nothing_is_ignored(
    argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_has_its_figure_in_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    assert main(["figure", str(run)]) == 2
    assert f"its figure is {run}/figure.png" in capsys.readouterr().err


# ---- places ------------------------------------------------------------------------------------------------------


@for_each("verb", ["calibrate", "profile"])
@for_each("place", ["file/below", "folder"])
def test_nothing_is_measured_that_cannot_be_written(
    verb: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.cli.calibrate._table", lambda: pytest.fail("was measured"))
    monkeypatch.setattr("analysis.profile.profile", lambda *_: pytest.fail("was measured"))
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "folder" and access(path, mode))  # of root
    given = ["--costs", str(tmp_path / place / "costs.csv")]
    if verb == "profile":
        given = [QUICKSTART, "--on", "local", "--out", str(tmp_path / place)]
    assert main([verb, *given]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / place.partition("/")[0]) in said and "give another place" in said


def test_a_first_scenario_in_a_folder_that_does_not_exist_is_refused_with_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", str(tmp_path / "gone" / "first.yaml")]) == 2
    assert f"make it first: mkdir -p {tmp_path / 'gone'}" in capsys.readouterr().err


@for_each(
    ("manifest", "told"),
    [
        ({"job_sha256": "of another one"}, "its checkpoints belong to another job"),
        ({"round": 199}, "its newest checkpoint has 200 rounds, more than training.rounds ("),
    ],
)
def test_checkpoints_from_which_a_run_cannot_go_on_are_refused_before_anything_is_created(
    manifest: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "before" / "checkpoints" / "ckpt-000004"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    argv = ["run", QUICKSTART, "--on", "simulate", "--resume", str(tmp_path / "before"), "--out", str(tmp_path / "run")]
    assert main(argv) == 2
    assert f"--resume {tmp_path / 'before'}: {told}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_copied_scenario_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["scenarios", "scripts/plain_pytorch", "--copy", str(tmp_path), "--json"]
    assert main(argv) == 0
    scenario, script = (tmp_path / f"plain_pytorch.{ending}" for ending in ("yaml", "py"))
    assert set(json.loads(capsys.readouterr().out)["written"]) == {str(scenario), str(script)}
    shipped = script.read_bytes()
    scenario.unlink()
    script.write_text("mine")
    assert main(argv) == 2
    assert f"{script}: exists already, with other content; give another directory" in capsys.readouterr().err
    assert script.read_text() == "mine" and not scenario.exists()
    script.write_bytes(shipped)
    assert main(argv) == 0
    assert scenario.is_file() and script.read_bytes() == shipped


# ---- clean -------------------------------------------------------------------------------------------------------


def test_runs_that_cannot_be_cleaned_do_not_keep_others_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("damaged", "foreign", "torn"):
        make_run(tmp_path / name)
    (tmp_path / "damaged" / "status.json").write_text("{")
    status = tmp_path / "torn" / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"state": "running"}))  # without a live owner
    sweep = atomic.sweep

    def swept(path: Path) -> list[Path]:
        if path.name == "foreign":
            raise PermissionError(13, "Permission denied", str(path))
        return sweep(path)

    monkeypatch.setattr(atomic, "sweep", swept)
    assert main(["clean", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["crashed_runs"] == {str(tmp_path / "torn"): "done"}
    assert RunDirectory(tmp_path / "torn").status().state == "done"
    damaged, foreign = told["warnings"]
    assert damaged.startswith(f"{tmp_path / 'damaged' / 'status.json'}: damaged")
    assert foreign == f"{tmp_path / 'foreign'}: permission denied; it is skipped"


def test_an_interrupt_while_a_class_is_made_is_an_interrupt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules are imported when a verb needs them, and Python 3.11 hides what is raised there in a RuntimeError."""

    class Interrupting:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt("SIGTERM")

    def execute(_arguments: Any) -> int:
        type("Made", (), {"field": Interrupting()})
        return 0

    monkeypatch.setattr("testbed.cli.scenarios.execute", execute)
    assert main(["scenarios"]) == 143
    assert capsys.readouterr().err == "testbed: interrupted\n"
