"""Session tests: the launcher against a fake host process that writes given lines to its output."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import environment
from testbed.errors import CapabilityError
from testbed.execution import session
from testbed.execution.session import HostProcess
from testbed.plan.model import Plan
from testbed.processes.child import spawn
from testbed.settings.job import Choice
from tests.for_each import for_each
from tests.results.fake_run import make_plan


def trainable() -> Plan:
    """Of a model that there is."""
    plan = make_plan(back_end="local")
    return replace(plan, training=replace(plan.training, model=Choice(kind="mlp")))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostProcess]:
    """The host process of all sessions."""
    process = spawn(["cat"], stdin=-1, stdout=-1, text=True, start_new_session=True)
    assert process.stdout is not None
    started = HostProcess(process, process.stdout)
    monkeypatch.setattr(session, "_start", lambda plan, directory: started)
    yield started
    process.close()


@for_each("what", ["run", "data"])
def test_an_emulated_run_is_refused_what_its_sandbox_does_not_see(tmp_path: Path, what: str) -> None:
    hidden, plan = Path("/dev/shm/mine"), trainable()
    data = Choice(kind="text", options={"file": str(hidden)}) if what == "data" else plan.training.data
    plan = replace(plan, back_end="emulate", training=replace(plan.training, data=data))
    with pytest.raises(CapabilityError, match="/dev/shm/mine: is hidden in an emulated run, which has a /dev/shm"):
        session.run(plan, hidden if what == "run" else tmp_path, lambda event: None)


def test_how_a_host_ended_is_told_even_if_it_has_before_the_run_begins(host: HostProcess, tmp_path: Path) -> None:
    """Such as one that the kernel kills for want of memory, while it imports torch."""
    host.process.kill_group()
    host.process.wait()
    ended = session.run(trainable(), tmp_path, lambda event: None)
    assert (ended.status, ended.exit_code) == ("failed", 4) and "the host process ended with signal 9" in ended.message


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_host_that_does_not_stop_is_killed(
    host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_thread: bool
) -> None:
    """In any thread: ``testbed.run`` is called in that of a user, and callbacks end runs by ``KeyboardInterrupt``."""
    monkeypatch.setattr(session, "STOP_GRACE_S", 0.05)
    shown: list[Any] = []

    def on_progress(event: Any) -> None:
        shown.append(event.get("name"))
        if event["kind"] == "round":
            raise KeyboardInterrupt

    def run() -> None:
        assert host.process.stdin is not None
        host.process.stdin.write('{"kind": "round"}\n')
        host.process.stdin.flush()
        ended.append(session.run(make_plan(back_end="local"), tmp_path, on_progress))

    ended: list[session.SessionResult] = []
    before, thread = threading.active_count(), threading.Thread(target=run)
    if in_thread:
        thread.start()
        thread.join(240)
    else:
        run()
    assert [each.status for each in ended] == ["interrupted"]
    assert shown == [None, "stopping"] and host.process.wait(0) == -signal.SIGKILL
    assert threading.active_count() == before


@pytest.mark.parametrize(("told", "status"), [("", "interrupted"), ("done", "done"), ("failed", "interrupted")])
def test_a_host_that_has_ended_need_not_be_stopped(host: HostProcess, tmp_path: Path, told: str, status: str) -> None:
    """If it has told that the run is complete, the run was not interrupted."""

    def on_progress(event: Any) -> None:
        if event["kind"] == "round":
            host.process.kill_group()
            host.process.wait()
            raise KeyboardInterrupt

    assert host.process.stdin is not None
    outcome = f'{{"kind": "outcome", "status": "{told}", "message": "", "exit_code": 0}}\n' if told else ""
    host.process.stdin.write('{"kind": "round"}\n' + outcome)
    host.process.stdin.flush()
    assert session.run(make_plan(back_end="local"), tmp_path, on_progress).status == status


def test_a_second_interrupt_may_come_while_the_first_is_shown(host: HostProcess) -> None:
    def on_progress(event: Any) -> None:
        raise KeyboardInterrupt

    assert session._stop(host, on_progress).status == "interrupted"
    assert host.process.stdout is not None and host.process.stdout.readline() == '"stop"\n'


@pytest.mark.parametrize(("status", "known"), [("done", "done"), ("diverged", "diverged"), ("failed", "interrupted")])
def test_a_run_that_completes_while_it_is_stopped_was_not_interrupted(
    host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, known: str
) -> None:
    """A failure may be one of stopping."""
    monkeypatch.setattr(session, "STOP_GRACE_S", 0.05)

    def on_progress(event: Any) -> None:
        if event["kind"] == "round":
            raise KeyboardInterrupt

    assert host.process.stdin is not None
    outcome = f'{{"kind": "outcome", "status": "{status}", "message": "", "exit_code": 0}}'
    host.process.stdin.write(f'{{"kind": "round"}}\n{outcome}\n')
    host.process.stdin.flush()
    ended = session.run(make_plan(back_end="local"), tmp_path, on_progress)
    assert (ended.status, ended.exit_code) == (known, 130 if known == "interrupted" else 0)


def test_a_run_that_had_told_its_end_was_not_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its process may need a while to end: that of a large model, or one with namespaces or a kernel."""

    def lines() -> Iterator[str]:
        yield '{"kind": "outcome", "status": "done", "message": "", "exit_code": 0}'
        if host.told:
            raise KeyboardInterrupt

    host = HostProcess(spawn(["cat"], stdin=-1, stdout=-1, text=True, start_new_session=True), lines())
    monkeypatch.setattr(session, "_start", lambda plan, directory: host)
    assert session.run(make_plan(back_end="local"), tmp_path, lambda event: None).status == "done"


def test_what_lies_in_the_working_directory_hides_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the user')")
    monkeypatch.chdir(tmp_path)
    ended = session.run(trainable(), tmp_path, lambda event: None)
    assert ended.status == "failed" and "No such file or directory" in ended.message and "plan.json" in ended.message


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that every interpreter has stands for those that take a second to import."""
    monkeypatch.setitem(session.IMPORTED_EARLY, "local", ("json",))


@pytest.mark.usefixtures("early")
def test_a_host_that_is_started_before_there_is_a_plan_takes_the_run(tmp_path: Path) -> None:
    with session.early_host("local") as host:
        assert host is not None
        ended = session.run(trainable(), tmp_path, lambda event: None, host)
    assert ended.status == "failed" and f"{tmp_path}/plan.json" in ended.message  # it was looked for there
    assert "Traceback" in (tmp_path / "host.log").read_text()


@pytest.mark.usefixtures("early")
def test_a_host_that_gets_no_plan_is_ended() -> None:
    with pytest.raises(RuntimeError), session.early_host("local") as host:
        raise RuntimeError("no plan")
    assert host is not None and host.process.wait(0) is not None


@pytest.mark.usefixtures("early")
def test_a_host_is_not_started_early_if_a_program_is_missing_which_only_a_sandbox_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session.IMPORTED_EARLY, "emulate", ("json",))
    monkeypatch.setenv("PATH", str(tmp_path))
    with session.early_host("emulate") as host:
        assert host is None  # the run says what is missing
    with session.early_host("local") as host:
        assert host is not None
        ended = session.run(trainable(), tmp_path, lambda event: None, host)
    assert f"{tmp_path}/plan.json" in ended.message


def test_no_host_is_started_early_where_another_kernel_or_machine_runs_it() -> None:
    for back_end in ("exact", "cluster"):
        with session.early_host(back_end) as host:
            assert host is None


def test_an_error_before_the_host_knows_its_directory_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session.IMPORTED_EARLY, "local", ("json", "a_module_that_is_not_there"))
    with session.early_host("local") as host:
        session.run(trainable(), tmp_path, lambda event: None, host)
    assert "No module named 'a_module_that_is_not_there'" in (tmp_path / "host.log").read_text()


def test_a_clone_runs_its_own_code_and_not_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ``python -m testbed.cli.main`` in a working tree of git that is not the installed one."""
    (tmp_path / "testbed").mkdir()
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "testbed" / "environment.py"))
    monkeypatch.chdir(tmp_path)
    assert environment.own_interpreter() == [sys.executable]
    monkeypatch.chdir("/")
    assert environment.own_interpreter() == [sys.executable, "-P"]


def test_what_a_library_prints_is_no_event_even_if_it_is_json() -> None:
    lines = ["3", "null", "{}", "[1]", "half a {", '{"kind": "stage", "name": "training"}']
    assert list(session._events(lines)) == [{"kind": "stage", "name": "training"}]
