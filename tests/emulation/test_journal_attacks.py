"""`testbed clean`, run as a command, on journals that no run has written: nothing that they name is touched.

Every attack is planted in ``$XDG_RUNTIME_DIR/testbed/journals``, where journals lie, and in
``$TMPDIR/testbed-journal-<uid>``, where they once lay and anybody could make them.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from emulation.journal import LIMIT_BYTES
from testbed.process_id import ProcessId
from tests.emulation.inside import ROOT

NOBODY = 65534
DEAD: dict[str, Any] = {"pid": 1, "start_ticks": -1, "boot_id": "x"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files and processes of other users")


@dataclass(frozen=True)
class Machine:
    """A user's directories, and somebody's directory that must stay."""

    xdg: Path
    tmp: Path
    victim: Path

    @property
    def base(self) -> Path:
        return self.xdg / "testbed"

    @property
    def journals(self) -> tuple[Path, Path]:
        return self.base / "journals", self.tmp / f"testbed-journal-{os.geteuid()}"

    def clean(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `testbed clean` as a user would; it must not hang."""
        argv = [sys.executable, "-m", "testbed.cli.main", "clean", str(self.tmp)]
        directories = {"XDG_RUNTIME_DIR": str(self.xdg), "TMPDIR": str(self.tmp)}
        return subprocess.run(
            argv, cwd=self.tmp, env={**os.environ, "PYTHONPATH": str(ROOT), **directories, **environment},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    def plant(self, *lines: object) -> None:
        """A journal of a dead owner that lists these, in both places."""
        text = "".join(json.dumps(line) + "\n" for line in (DEAD, *lines))
        for folder in self.journals:
            (folder / "1-1.jsonl").write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "xdg", tmp_path / "tmp", tmp_path / "victim")
    made.xdg.mkdir(mode=0o700)
    made.base.mkdir(mode=0o700)
    made.tmp.mkdir()
    made.tmp.chmod(0o1777)
    for folder in made.journals:
        folder.mkdir(mode=0o700)
    made.victim.mkdir()
    (made.victim / "work").write_text("of years")
    return made


def refused(machine: Machine, reason: str) -> None:
    """The command says why it has not used the journal, ends well, and the victim is as it was."""
    ended = machine.clean()
    assert (machine.victim / "work").read_text() == "of years"
    assert ended.returncode == 0, ended.stderr
    assert "warning: journal " in ended.stderr and reason in ended.stderr, ended.stderr
    assert os.path.lexists(machine.journals[0] / "1-1.jsonl")


# ---- the finding ----------------------------------------------------------------------------------------------------


@needs_root
def test_what_another_user_plants_before_roots_first_run_removes_nothing(machine: Machine) -> None:
    journal = json.dumps(DEAD) + "\n" + json.dumps({"path": str(machine.victim)}) + "\n"
    code = (
        'for place in testbed-journal-0 testbed-0/journals; do mkdir -p "$place"; echo "$0" >"$place/1-1.jsonl"; done'
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:  # pytest's own directories are for root alone
        Path(shared).chmod(0o1777)
        subprocess.run(["/bin/sh", "-c", code, journal], cwd=shared, user=NOBODY, group=NOBODY, check=True)
        ended = machine.clean(TMPDIR=shared)
    assert "removed" not in ended.stdout and ended.returncode == 0, ended.stderr
    assert (machine.victim / "work").read_text() == "of years"


# ---- what a journal is ----------------------------------------------------------------------------------------------


def test_a_symbolic_link_as_journal(machine: Machine) -> None:
    machine.plant({"path": str(machine.victim)})
    for folder in machine.journals:
        (folder / "1-1.jsonl").rename(folder / "elsewhere")
        (folder / "1-1.jsonl").symlink_to("elsewhere")
    refused(machine, "it cannot be opened")


def test_a_pipe_as_journal_stops_nobody(machine: Machine) -> None:
    for folder in machine.journals:
        os.mkfifo(folder / "1-1.jsonl")
    refused(machine, "it is not a regular file")


def test_a_directory_as_journal(machine: Machine) -> None:
    for folder in machine.journals:
        (folder / "1-1.jsonl").mkdir()
    refused(machine, "it is not a regular file")


@needs_root
def test_a_journal_of_another_user(machine: Machine) -> None:
    machine.plant({"path": str(machine.victim)})
    for folder in machine.journals:
        os.chown(folder / "1-1.jsonl", NOBODY, NOBODY)
    refused(machine, f"it belongs to user {NOBODY} and not to user 0")


def test_a_journal_that_others_can_write_to(machine: Machine) -> None:
    machine.plant({"path": str(machine.victim)})
    for folder in machine.journals:
        (folder / "1-1.jsonl").chmod(0o666)
    refused(machine, "others can write to it (mode 0666)")


def test_a_journal_with_a_second_name(machine: Machine) -> None:
    machine.plant({"path": str(machine.victim)})
    for folder in machine.journals:
        (folder / "second").hardlink_to(folder / "1-1.jsonl")
    refused(machine, "it has 2 names")


def test_a_journal_of_any_size(machine: Machine) -> None:
    machine.plant(*[{"path": str(machine.victim)}] * LIMIT_BYTES)
    refused(machine, f"it has more than {LIMIT_BYTES} bytes")


# ---- what it says ---------------------------------------------------------------------------------------------------

ME: dict[str, Any] = {"pid": 2, "start_ticks": 1, "boot_id": "x"}


LINES = (
    "garbage", "", "[]", "null", "1", '{"path": 1}', '{"path": null}', '{"process": 1}', '{"process": {}}', "{}",
    '{"process": {"pid": "1", "start_ticks": 1, "boot_id": "x"}}', '{"other": "x"}', "[" * 20_000, "9" * 5_000,
    '{"process": {"pid": -1, "start_ticks": 1, "boot_id": "x"}}', '{"path": "\\u0000"}', '{"path": "\\ud800"}',
    json.dumps({"process": {**ME, "pid": 2**70}}), json.dumps({"process": {**ME, "pid": True}}),
    json.dumps({"process": {**ME, "more": 1}}), json.dumps({"process": ME, "path": "x"}),
)  # fmt: skip


@pytest.mark.parametrize("at", [0, 1])
def test_lines_that_no_run_writes(machine: Machine, at: int) -> None:
    for number, line in enumerate(LINES):
        lines = [json.dumps(DEAD), json.dumps({"path": str(machine.base / "testbed-tls-12345678")})]
        lines.insert(at, line)
        for folder in machine.journals:
            (folder / f"{number}-1.jsonl").write_text("\n".join(lines) + "\n")
    ended = machine.clean()
    assert ended.returncode == 0 and "nothing to clean" in ended.stdout, ended.stderr
    assert ended.stderr.count("warning: journal ") == len(LINES) == len(ended.stderr.splitlines())


@pytest.mark.parametrize("line", ["garbage", '{"path": 1}', "[]"])
def test_a_line_that_no_run_writes(machine: Machine, line: str) -> None:
    for folder in machine.journals:
        (folder / "1-1.jsonl").write_text(f"{json.dumps(DEAD)}\n{line}\n")
    refused(machine, "a line")


def test_bytes_that_are_no_text(machine: Machine) -> None:
    for folder in machine.journals:
        (folder / "1-1.jsonl").write_bytes(b"\xff\xfe\n")
    refused(machine, "a line is not one that a run writes")


@pytest.mark.parametrize("place", [".", "victim", "../victim", "testbed-tls-12345678"])
def test_no_path_is_ever_removed(machine: Machine, place: str) -> None:
    machine.plant({"path": str(machine.base / place)}, {"path": str(machine.victim)})
    refused(machine, "a line is not one that a run writes")
    assert machine.base.is_dir() and (machine.victim / "work").exists()


@needs_root
def test_a_process_of_another_user_is_not_killed(machine: Machine) -> None:
    with subprocess.Popen(["sleep", "1000"], user=NOBODY, group=NOBODY) as child:
        machine.plant({"process": asdict(ProcessId.of(child.pid))})
        try:
            refused(machine, f"it lists process {child.pid}, which is another user's")
            assert child.poll() is None
        finally:
            child.kill()


def test_a_process_that_started_at_another_time_is_not_killed(machine: Machine) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        was = asdict(ProcessId.of(child.pid))
        machine.plant({"process": {**was, "start_ticks": was["start_ticks"] - 1}}, {"process": {**was, "boot_id": "x"}})
        try:
            assert machine.clean().returncode == 0 and child.poll() is None
        finally:
            child.kill()


def test_one_bad_journal_does_not_keep_others_from_being_cleaned(machine: Machine) -> None:
    with subprocess.Popen(["sleep", "1000"]) as left:
        machine.plant({"process": asdict(ProcessId.of(left.pid))})
        (machine.journals[0] / "0-0.jsonl").write_text("garbage\n")
        ended = machine.clean()
        assert f"removed process {left.pid}" in ended.stdout and "0-0.jsonl" in ended.stderr
        assert left.wait(5) == -9


# ---- where it lies --------------------------------------------------------------------------------------------------


def _others_write(folder: Path) -> None:
    folder.chmod(0o777)


def _link(folder: Path) -> None:
    real = folder.rename(folder.with_name("real"))
    folder.symlink_to(real)


def _other_owner(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)


SPOILT: list[Any] = [_others_write, _link, pytest.param(_other_owner, marks=needs_root)]


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("which", ["state directory", "journals"])
def test_a_directory_that_others_could_have_changed(
    machine: Machine, spoil: Callable[[Path], None], which: str
) -> None:
    machine.plant({"path": str(machine.victim)})
    inner, old = machine.journals
    place = machine.base if which == "state directory" else inner
    spoil(place)
    spoil(old)
    ended = machine.clean()
    assert (machine.victim / "work").exists()
    assert ended.returncode == 3 and f"testbed: {place}: " in ended.stderr and "cure: " in ended.stderr, ended.stderr


@pytest.mark.parametrize("names", [("XDG_RUNTIME_DIR",), ("TMPDIR",), ("XDG_RUNTIME_DIR", "TMPDIR")])
def test_a_hostile_place_by_environment(machine: Machine, tmp_path: Path, names: tuple[str, ...]) -> None:
    hostile = tmp_path / "hostile"
    for folder in (f"testbed-journal-{os.geteuid()}", "testbed/journals", f"testbed-{os.geteuid()}/journals"):
        (hostile / folder).mkdir(parents=True)
        (hostile / folder / "1-1.jsonl").write_text(
            f"{json.dumps(DEAD)}\n{json.dumps({'path': str(machine.victim)})}\n"
        )
    for path in (hostile, *hostile.rglob("*")):
        path.chmod(0o777 if stat.S_ISDIR(path.stat().st_mode) else 0o666)
    ended = machine.clean(**dict.fromkeys(names, str(hostile)))
    assert (machine.victim / "work").exists() and "removed" not in ended.stdout
    assert ended.returncode in (0, 3) and "Traceback" not in ended.stderr, ended.stderr
