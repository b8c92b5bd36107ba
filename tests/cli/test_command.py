"""The command as users and scripts meet it: help, errors, exit codes, JSON, every verb."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cli import main as command
from testbed.cli.main import main
from testbed.errors import CapabilityError
from testbed.execution import session
from testbed.process_id import pid_space
from testbed.results.events import EventLog
from testbed.results.rundir import RunDirectory, claim
from testbed.scenario.reading.axes import AXES
from tests.for_each import for_each
from tests.results.fake_run import fake_session, make_run, result_of

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is played by the fake run; everything around it is the real thing."""
    monkeypatch.setattr(session, "run", _fake)


def _fake(plan: Any, directory: Path, on_progress: Any, *_: Any) -> session.SessionResult:
    from tests.results.fake_run import make_plan

    del plan
    return fake_session(make_plan(back_end="local"), directory, on_progress)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished") / "run")


def run_quickstart(out: Path, *more: str) -> int:
    return command.main(["run", str(QUICKSTART), "--on", "local", "--out", str(out), *more])


def test_help_is_light() -> None:
    code = (
        "import sys\nsys.argv = ['testbed', '--help']\n"
        "from testbed.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'rich', 'pydantic', 'pyarrow', 'msgspec'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "exit codes:" in done.stdout


@for_each("verb", ["validate", "plan", "run"])
def test_a_bad_scenario_is_one_message_and_creates_nothing(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = tmp_path / "bad.yaml"
    scenario.write_text("version: 1\nnam: x\nseed: one\n")
    assert command.main([verb, str(scenario)]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert f"{scenario}:2:1: nam: unknown key" in said.err
    assert f"{scenario}:3:" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_an_error_of_ours_is_code_1_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> int:
        raise KeyError("oops")

    monkeypatch.setattr("testbed.cli.schema.execute", broken)
    assert command.main(["schema", "--json"]) == 1
    said = capsys.readouterr()
    assert "an error of testbed itself" in said.err
    assert json.loads(said.out)["exit_code"] == 1


def test_an_error_of_a_technique_from_outside_has_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = (Path(__file__).parents[1] / "testing/examples/warm_hfa.py").read_text()
    broken = f"{own}\n    @classmethod\n    def lan_rounds(cls, options):\n        return options.none\n"
    Path("mine.py").write_text(broken)
    Path("mine.yaml").write_text(QUICKSTART.read_text())
    settings = ("training.evaluate_every=1", "optimizer={kind: sgd, at: worker}", "sync=./mine.py:WarmHfa")
    words = [word for setting in settings for word in ("--set", setting)]
    assert command.main(["plan", "mine.yaml", "--set", "links[*].rate_trace=null", *words]) == 2
    line = broken.count("\n")
    assert f"{tmp_path / 'mine.py'}:{line}: AttributeError: 'Options' object has no" in capsys.readouterr().err


def test_validate_plan_and_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["validate", str(QUICKSTART), "--on", "simulate", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["back_end"] == "simulate"
    (trace,) = told["traces"]
    assert (trace["name"], trace["format"], trace["samples"]) == ("traces/evening-peak.csv", "csv", 7)
    assert command.main(["validate", str(QUICKSTART)]) == 0
    line = "trace traces/evening-peak.csv: rate, csv (detected), 7 samples, 34 s, in Mbit/s"
    assert line in capsys.readouterr().out
    assert (
        command.main(["plan", str(QUICKSTART), "--on", "simulate", "--seed", "7", "--set", "training.rounds=30"]) == 0
    )
    plan = json.loads(capsys.readouterr().out)
    assert (plan["seed"], plan["training"]["rounds"]) == (7, 30)
    assert command.main(["plan", str(QUICKSTART), "--table"]) == 0
    assert "virginia/global0" in capsys.readouterr().out
    assert command.main(["schema"]) == 0
    assert "$schema" in json.loads(capsys.readouterr().out)


def test_the_help_of_schema_names_every_axis(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["schema", "--help"])
    words = set(re.findall(r"[a-z]+", capsys.readouterr().out))
    assert set(AXES) <= words


def test_doctor_names_gaps_and_cures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["simulate"] is True
    assert all(gap["cure"] for gap in report["gaps"])
    monkeypatch.setattr("testbed.execution.capacity.measured_step_s", lambda plan: 0.01)  # for a second
    assert command.main(["doctor"]) == 0
    assert "emulate: " in capsys.readouterr().out


# ---- run --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("faked")
def test_a_run_leaves_a_directory_that_explains_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run_quickstart(out, "--seed", "3") == 0
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "scenario.yaml",
        "resolved.yaml",
        "plan.json",
        "manifest.json",
        "events",
        "tables",
        "result.json",
        "fidelity.json",
        "summary.txt",
        "figure.png",
        "log",
        "status.json",
    }
    assert (out / "scenario.yaml").read_bytes() == QUICKSTART.read_bytes()
    assert "seed: 3" in (out / "resolved.yaml").read_text()
    assert json.loads((out / "manifest.json").read_text())["seed"] == 3
    assert RunDirectory(out).status().state == "done"
    said = capsys.readouterr().out
    assert "quickstart on local: done" in said
    assert "warning: a trace change came 20 ms late" in (out / "log").read_text()
    assert "\x1b" not in said, "no colours into a pipe"


@pytest.mark.usefixtures("faked")
def test_json_is_one_object_a_line_and_the_result_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_quickstart(tmp_path / "run", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"stage", "status", "evaluate", "warning"} <= {line["kind"] for line in lines}
    assert lines[-1]["kind"] == "result"
    assert lines[-1]["result"] == result_of(tmp_path / "run")


@pytest.mark.usefixtures("faked")
def test_the_same_again_is_already_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run_quickstart(out, "--quiet") == 0
    before = result_of(out)
    capsys.readouterr()
    assert run_quickstart(out) == 0
    assert "has been run already" in capsys.readouterr().out
    assert result_of(out) == before
    assert run_quickstart(out, "--seed", "9") == 2
    assert "finished run of another plan" in capsys.readouterr().err
    assert run_quickstart(out, "--seed", "9", "--again", "--quiet") == 0


# ---- looking at runs --------------------------------------------------------------------------------------------


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["testbed", "run", "a b.yaml"])
    path = make_run(tmp_path / "run")
    assert command.main(["show", str(path), "--figure"]) == 0
    said = capsys.readouterr().out
    for words in (
        "quickstart on emulate: done",
        "over the WAN",
        "time per round",
        "fidelity: ok",
        "ran on",
        "'a b.yaml'",
    ):
        assert words in said
    assert re.search(r"back end +emulate", said)
    assert command.main(["show", str(make_run(tmp_path / "simulated", back_end="simulate"))]) == 0
    assert re.search(r"back end +simulate", capsys.readouterr().out)
    assert (path / "figure.png").is_file()
    assert command.main(["show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["result"] == result_of(path)
    assert len(shown["time_per_round"]) == 10


@for_each("name", ["plan.json", "status.json", "manifest.json", "fidelity.json", "result.json"])
@for_each("content", ["{", "[]", "\xff"])
def test_show_names_the_file_that_is_damaged(
    name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], finished: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / name).write_bytes(content.encode("latin-1"))
    assert command.main(["show", str(run)]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"testbed: {run / name}: damaged (") and "run the scenario again" in message


def test_clean_buries_the_dead_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "finished")
    owner = os.fork()
    if owner == 0:
        try:
            claim(tmp_path / "dead", "x" * 64)
        finally:
            os._exit(0)
    os.waitpid(owner, 0)
    half = tmp_path / "dead" / f".result.json.999999-1-{pid_space()}.tmp"
    half.write_text("half")
    of_kernel = [tmp_path / "dead" / name for name in (".progress", ".clock", ".exact.json", ".kernel.log")]
    for path in of_kernel:
        path.touch()
    live = claim(tmp_path / "live", "x" * 64)
    (live.path / ".clock").touch()
    assert command.main(["clean", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["crashed_runs"] == {str(tmp_path / "dead"): "failed"}
    assert said["temporary_files"] == [*map(str, of_kernel), str(half)]
    assert (live.path / ".clock").exists()
    assert RunDirectory(tmp_path / "finished").status().state == "done"
    assert command.main(["clean", str(tmp_path)]) == 0
    assert "nothing to clean" in capsys.readouterr().out


# ---- where nothing can be written, and settings that mean nothing -------------------------------------------------


@for_each("verb", ["export", "sweep", "run"])
def test_a_place_that_cannot_be_written_is_the_user_s_mistake(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.execution.sweep.execute", lambda job, *told: job.directory.mkdir(parents=True))
    (tmp_path / "file").write_text("")
    given = [str(QUICKSTART), "--on", "local"] if verb in ("run", "sweep") else [str(make_run(tmp_path / "run"))]
    assert command.main([verb, *given, "--out", str(tmp_path / "file" / "below")]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "file") in said and "give another" in said
    assert "an error of testbed itself" not in said


def test_a_full_disk_is_the_machine_s_fault(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/result.json")

    monkeypatch.setattr("testbed.cli.schema.execute", full)
    assert command.main(["schema"]) == 3
    assert capsys.readouterr().err == "testbed: /data/result.json: no space left on device; make room\n"


def test_an_error_that_has_only_a_text_keeps_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that a data set of one's own raises by itself."""

    def without_file(_: Any) -> int:
        raise FileNotFoundError("sensors.npz: fetch it first")

    monkeypatch.setattr("testbed.cli.schema.execute", without_file)
    assert command.main(["schema"]) == 1
    assert "FileNotFoundError: sensors.npz: fetch it first" in capsys.readouterr().err


def test_who_cannot_emulate_is_told_what_works_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking() -> Any:
        def delay_method() -> str:
            raise CapabilityError("namespaces: run as root")

        return SimpleNamespace(delay_method=delay_method, to_dict=dict)

    monkeypatch.setattr("emulation.probe.probe", lacking)
    assert command.main(["run", str(QUICKSTART), "--out", str(tmp_path / "run")]) == 3
    said = capsys.readouterr().err
    assert "namespaces: run as root" in said and "--on simulate" in said and "--on local" in said
    assert not (tmp_path / "run").exists()


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
    assert some == [
        event
        for event in every
        if event["kind"] in ("round", "evaluate") and event["node"] in ("tokyo/worker1", "virginia/worker0")
    ]
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
