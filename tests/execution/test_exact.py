"""The launcher's side of an exact run: progress by a file, a watchdog of virtual time, and what is left."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from testbed.errors import NoProgress, ScenarioError
from testbed.execution import exact
from testbed.plan.build import build_plan
from testbed.plan.model import from_json, to_json
from testbed.processes.child import Child, spawn
from testbed.scenario.load import load
from tests.for_each import for_each


@contextmanager
def started(script: str, directory: Path) -> Iterator[Child]:
    (directory / exact.PROGRESS).touch()
    process = spawn([sys.executable, "-S", "-c", script, str(directory)], start_new_session=True)
    try:
        yield process
    finally:
        process.close()


_WRITES = """
import sys, time
with open(sys.argv[1] + "/.progress", "a") as file:
    for text in ("one\\ntw", "o\\n", "three\\n"):
        file.write(text); file.flush(); time.sleep(0.1)
    file.write("after\\n")
"""


def test_lines_come_whole_and_in_order_until_the_end(tmp_path: Path) -> None:
    with started(_WRITES, tmp_path) as process:
        assert list(exact.Lines(process, tmp_path)) == ["one", "two", "three", "after"]


def test_each_line_comes_once_however_often_ctrl_c_ends_an_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come while the launcher waits for lines, and while it takes one."""
    pauses: list[float] = []

    def pause(duration_s: float) -> None:
        pauses.append(duration_s)
        if len(pauses) in (1, 5):
            raise KeyboardInterrupt
        sleep(duration_s)

    sleep, taken = time.sleep, list[str]()
    monkeypatch.setattr(exact.time, "sleep", pause)
    with started(_WRITES, tmp_path) as process:
        lines = exact.Lines(process, tmp_path)
        for _ in range(4):
            with suppress(KeyboardInterrupt):
                for line in lines:
                    taken.append(line)
                    if line == "three":
                        raise KeyboardInterrupt
    assert taken == ["one", "two", "three", "after"]


def test_messages_name_the_run_directory_of_this_machine(tmp_path: Path) -> None:
    script = _WRITES.replace("after", f"see {exact.RUN_DIRECTORY}/failures")
    with started(script, tmp_path) as process:
        assert list(exact.Lines(process, tmp_path))[-1] == f"see {tmp_path}/failures"


def test_a_guest_that_computes_without_end_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SPIN_LIMIT_S", 0.05)
    monkeypatch.setattr(exact, "_CHECK_S", 0.05)
    with started("while True: pass", tmp_path) as process, pytest.raises(NoProgress, match="sched_yield"):
        list(exact.Lines(process, tmp_path))
    assert NoProgress.exit_code == 5


_COMPUTES_IN_VIRTUAL_TIME = """
import sys, time
end = time.monotonic() + 0.3
with open(sys.argv[1] + "/.clock", "ab", buffering=0) as clock:
    while time.monotonic() < end:
        clock.write(b".")
"""


def test_a_guest_that_computes_long_is_left_alone_while_its_time_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of a large model brings no event for minutes of the processor, when computing takes virtual time."""
    monkeypatch.setattr(exact, "SPIN_LIMIT_S", 0.1)
    monkeypatch.setattr(exact, "_CHECK_S", 0.05)
    with started(_COMPUTES_IN_VIRTUAL_TIME, tmp_path) as process:
        assert list(exact.Lines(process, tmp_path)) == []


def test_a_guest_that_waits_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SPIN_LIMIT_S", 0.2)
    monkeypatch.setattr(exact, "_CHECK_S", 0.1)
    with started("import time; time.sleep(1)", tmp_path) as process:
        assert list(exact.Lines(process, tmp_path)) == []


def test_a_guest_of_which_a_process_is_dead_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "IDLE_LIMIT_S", 0.5)
    monkeypatch.setattr(exact, "_CHECK_S", 0.1)
    with started("import time; time.sleep(30)", tmp_path) as process, pytest.raises(NoProgress, match="killed or"):
        list(exact.Lines(process, tmp_path))


def test_an_interrupt_ends_the_guest_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a session of its own, which Ctrl-C does not reach, and writes to a folder that is about to go."""

    def interrupted(limit_s: float | None = None) -> int:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with started("import time; time.sleep(60)", tmp_path) as process:
        monkeypatch.setattr(process, "wait", interrupted)
        monkeypatch.setattr(exact, "_start_kernel", lambda *_: process)
        with pytest.raises(KeyboardInterrupt):
            exact.run_command(["true"], tmp_path, 1)
        assert process.close() == -signal.SIGKILL


def test_processor_time_is_that_of_the_session_alone(tmp_path: Path) -> None:
    spin = "import time\nwhile time.process_time() < 0.1: pass\ntime.sleep(3600)"
    with started(spin, tmp_path) as busy, started("import time; time.sleep(3600)", tmp_path) as idle:
        while exact.processor_s(busy.pid) < 0.06:
            time.sleep(0.01)
        assert exact.processor_s(idle.pid) < exact.processor_s(busy.pid)


@for_each("status", ["done", "failed"])
def test_only_the_run_is_left_and_the_kernels_lines_after_a_failure(tmp_path: Path, status: str) -> None:
    (tmp_path / "host.log").write_text("from the host\n")
    (tmp_path / exact.KERNEL_LOG).write_text("from the kernel\n")
    for name in (exact.PROGRESS, exact.CLOCK, exact.JOB):
        (tmp_path / name).touch()
    exact.close(tmp_path, status)
    assert [path.name for path in tmp_path.iterdir()] == ["host.log"]
    assert ("from the kernel" in (tmp_path / "host.log").read_text()) == (status == "failed")


def test_the_plan_is_the_emulations() -> None:
    scenario = load("quickstart")
    emulated, planned = (build_plan(scenario, on) for on in ("emulate", "exact"))
    assert planned.nodes == emulated.nodes and planned.network == emulated.network
    assert planned.facilities.shapes_links and planned.exact is not None and emulated.exact is None
    assert from_json(to_json(planned)) == planned
    assert planned.exact.memory_bytes > len(planned.nodes) * 90e6


def test_a_guest_has_room_for_pytorch_and_for_as_many_nodes_as_the_default_has() -> None:
    with pytest.raises(ScenarioError, match=r"exact\.memory: 8 MiB is outside \[512 MiB, 1 TiB\]"):
        load("quickstart", ["exact.memory=8 MiB"], on="exact")
    assert load("quickstart", ["exact.memory=40 GiB"], on="exact").exact.memory_bytes == 40 << 30


def test_measured_steps_need_a_measured_processor() -> None:
    with pytest.raises(ScenarioError, match=r"take no time in an exact run.*write exact\.cpu: measured"):
        load("quickstart", ["device.pace=measured"], on="exact")
    plan = build_plan(load("quickstart", ["device.pace=measured", "device.speed=0.5", "exact.cpu=measured"]), "exact")
    device = next(node.device for node in plan.nodes if node.role == "worker")
    assert (device.pace, device.speed) == ("measured", 0.5)
    assert not any("device.speed" in warning for warning in plan.warnings)
    local = build_plan(load("quickstart", ["device.pace=measured", "device.speed=0.5"]), "local")
    assert any("device.speed: has no effect" in warning for warning in local.warnings)
