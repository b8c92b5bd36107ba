"""What the command refuses before any work: options without effect, numbers, places; and what it never overwrites."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import scenarios
from testbed.cli.main import main
from testbed.execution import session
from testbed.results import atomic
from testbed.results.rundir import RunDirectory
from testbed.scenario.shipped import names
from tests.for_each import for_each
from tests.results.fake_run import fake_session, make_plan, make_run

QUICKSTART = str(Path(__file__).parents[2] / "scenarios" / "quickstart.yaml")
SMALL = (
    "version: 1\nname: small\nseed: 1\n"
    "topology:\n  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]\n"
    "  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]\n"
    "training: {model: {kind: mlp, hidden: 8}, data: digits, rounds: 4, evaluate_every: 2}\n"
)


@for_each(
    ("argv", "said"),
    [
        (["run", QUICKSTART, "--again"], "--again: has no effect without --out"),
        (["check", "stale", "--axis", "figure", "--set", "a=1"], "--set: has no effect on the axis figure"),
        (["check", "stale", "--axis", "figure", "--file", "a"], "--file: has no effect on the axis figure"),
        (["report", "runs/one", "--out", "a.pdf"], "--out a.pdf: names the page; write a.html"),
        (["plan", QUICKSTART, "--table", "--json"], "--table: has no effect with --json"),
        (["shell", QUICKSTART, "--json"], "--json: has no effect on a shell"),
        (["validate-sim", QUICKSTART, "--jobs", "-1"], "--jobs -1: at least 1"),
        (["validate-sim", QUICKSTART, "--repeats", "0"], "--repeats 0: at least 1"),
        (["validate-sim", QUICKSTART, "--rounds", "0"], "--rounds 0: at least 1"),
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


def test_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 0
    assert "\n  links  " in capsys.readouterr().out
    assert main(["bench", "lniks"]) == 2


# ---- places ------------------------------------------------------------------------------------------------------


def test_costs_get_their_folder_before_they_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "no" / "such" / "costs.csv"
    monkeypatch.setattr("testbed.cli.calibrate._table", lambda: f"{path.parent.is_dir()}")
    assert main(["calibrate", "--costs", str(path)]) == 0
    assert path.read_text() == "True"


def test_measured_costs_are_one_object_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "costs.csv"
    monkeypatch.setattr("testbed.cli.calibrate._table", lambda: "")
    assert main(["calibrate", "--costs", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kind": "costs", "file": str(path)}


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


def test_a_folder_is_no_table_of_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.cli.calibrate._table", lambda: pytest.fail("was measured"))
    assert main(["calibrate", "--costs", str(tmp_path)]) == 2
    assert f"{tmp_path}: is a folder; name a file" in capsys.readouterr().err


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


def test_a_copied_scenario_has_the_files_that_it_names(tmp_path: Path) -> None:
    assert main(["scenarios", "topologies/zoo", "--copy", str(tmp_path)]) == 0
    assert main(["validate", str(tmp_path / "zoo.yaml")]) == 0
    for source in names().values():
        text = source.read_text()
        others = [each for each in source.parent.rglob("*") if each.suffix not in ("", ".yaml", ".md", ".pyc")]
        assert {each for each in others if each.name in text} <= set(scenarios._beside(source)), source


# ---- scenarios from a pipe ---------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[str]:
    """The path of a pipe with a scenario, as ``testbed run <(make)`` has it."""
    end, writer = os.pipe()
    os.write(writer, SMALL.encode())
    os.close(writer)
    yield f"/dev/fd/{end}"
    os.close(end)


def test_a_run_keeps_a_scenario_from_a_pipe(tmp_path: Path, pipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(plan: Any, directory: Path, on_progress: Any, *_: Any) -> session.SessionResult:
        del plan
        return fake_session(make_plan(back_end="local"), directory, on_progress)

    monkeypatch.setattr(session, "run", fake)
    assert main(["run", pipe, "--on", "local", "--quiet", "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "scenario.yaml").read_text() == SMALL


def test_a_sweep_varies_a_scenario_from_a_pipe(pipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", pipe, "--on", "simulate", "--seeds", "2", "--dry-run", "--json"]) == 0
    assert [point["seed"] for point in json.loads(capsys.readouterr().out)["points"]] == [1, 2]


def test_a_pipe_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "/dev/fd/999.yaml"]) == 2
    assert "/dev/fd/999.yaml: no such file or directory" in capsys.readouterr().err


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
