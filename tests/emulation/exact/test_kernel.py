"""The kernel of exact runs without building it: refusals with their cure, its identity, the guest's arguments."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from emulation.exact import command, guest_init, kernel
from emulation.exact.command import Guest
from emulation.exact.guest_init import OWN
from testbed.cli.main import main
from testbed.errors import CapabilityError
from testbed.process_id import start_ticks
from tests.for_each import for_each


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "testbed" / "exact"


def installed(text: bytes = b"a kernel") -> Path:
    """Install a file in the kernel's place, as ``build`` does at its end."""
    place = kernel._place()
    place.mkdir(parents=True, exist_ok=True)
    binary = place / "linux"
    binary.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    built = kernel.Kernel(str(binary), kernel.VERSION, kernel.PACKAGE_SHA256, *kernel._identity(), digest)
    (place / "kernel.json").write_bytes(msgspec.json.encode(built))
    return binary


def test_where_home_is_no_folder_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of users for services."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", os.devnull)
    with pytest.raises(CapabilityError, match="testbed exact build"):
        kernel.require()


def test_a_run_without_a_kernel_is_refused_with_the_cure(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["run", "quickstart", "--on", "exact", "--out", str(out)]) == CapabilityError.exit_code
    assert "testbed exact build" in capsys.readouterr().err
    assert not out.exists()


def test_a_kernel_is_found_until_its_file_changes(cache: Path) -> None:
    assert kernel.find() is None
    binary = installed()
    assert kernel.require().path == str(binary)
    binary.write_bytes(b"another")
    with pytest.raises(CapabilityError, match="changed since it was built"):
        kernel.require()


def test_building_replaces_a_kernel_that_was_changed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = installed()
    built = kernel.require()
    monkeypatch.setattr(kernel, "_require_tools", lambda folder: None)
    monkeypatch.setattr(kernel, "_package", lambda *arguments: Path("source.deb"))

    def build(*arguments: object) -> kernel.Kernel:
        binary.write_bytes(b"a kernel")
        return built

    monkeypatch.setattr(kernel, "_build_in", build)
    binary.write_bytes(b"another")
    assert kernel.build(print) == kernel.require() == built


def test_other_patches_make_another_kernel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel._place()
    monkeypatch.setattr(kernel, "_identity", lambda: ("of other patches", "0"))
    assert kernel._place() != before


def test_the_patches_change_what_they_say() -> None:
    changed = {line for name in kernel._PATCHES for line in (kernel._HERE / name).read_text().splitlines()}
    assert any("SPDX-License-Identifier: GPL-2.0" in line for line in changed)
    assert {"+++ b/arch/um/os-Linux/util.c", "+++ b/arch/um/kernel/skas/syscall.c"} <= changed


def test_another_source_is_refused(cache: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "source.deb"
    wrong.write_bytes(b"something else")
    with pytest.raises(CapabilityError, match="SHA-256 is"):
        kernel._package(wrong, tmp_path, print)
    with pytest.raises(CapabilityError, match=kernel.PACKAGE.split("+")[0]):
        kernel._package(tmp_path / "absent.deb", tmp_path, print)


def test_a_download_that_fails_names_every_mirror(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MIRRORS", ("file:///nowhere/", f"file://{tmp_path}/"))
    (tmp_path / kernel.PACKAGE).write_bytes(b"something else")
    with pytest.raises(CapabilityError, match="--source FILE") as error:
        kernel._package(None, tmp_path, lambda line: None)
    assert "nowhere" in str(error.value) and "SHA-256 is" in str(error.value)


def test_missing_tools_and_space_are_named(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(shutil, "which", lambda tool: None if tool in ("flex", "bc") else f"/usr/bin/{tool}")
        with pytest.raises(CapabilityError, match=r"flex, bc; cure: .*apt-get install"):
            kernel._require_tools(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(kernel, "_FREE_BYTES", 1 << 60)
    with pytest.raises(CapabilityError, match="make room"):
        kernel._require_tools(tmp_path)


def test_a_failed_command_tells_its_error_and_its_log(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "echo beginning; echo 'x.c:3: error: no such thing'; echo make: stopped; exit 2"
    with pytest.raises(CapabilityError, match=r"failed with 2: x.c:3: error: no such thing \(see .*log\)"):
        kernel._run(("sh", "-c", script), tmp_path, log)


def test_what_an_interrupted_build_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make's own children would go on for minutes, in a folder that is being removed."""
    begun = tmp_path / "begun"

    def interrupted(process: subprocess.Popen[bytes]) -> int:
        while not begun.exists() or not begun.read_text().endswith("\n"):
            time.sleep(0.005)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernel._run(("sh", "-c", f"sleep 60 & echo $! > {begun}; wait"), tmp_path, tmp_path / "log")
    child, end_s = int(begun.read_text()), time.monotonic() + 240
    while start_ticks(child) is not None:
        assert time.monotonic() < end_s, "it still runs"
        time.sleep(0.005)


def test_what_a_guest_is_follows_from_its_seed() -> None:
    def seed_of(seed: int) -> str:
        (found,) = (text for text in Guest(seed, 200, 1 << 30).arguments() if text.startswith("rngseed="))
        return found

    assert seed_of(1) != seed_of(2)
    assert seed_of(0) != "rngseed=0", "0 turns the generator off"
    assert {"mem=1024M", "tt-syscall=200", "time-travel=inf-cpu"} <= set(Guest(1, 200, 1 << 30).arguments())


def test_the_environment_of_a_guest_is_fixed() -> None:
    around = {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "1",
        "EDITOR": "vi",
        "SSH_AUTH_SOCK": "/",
        "ATEN_CPU_CAPABILITY": "avx2",
    }
    found = command.fixed_environment(around)
    assert {"PATH", "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "PYTHONHASHSEED"} <= found.keys()
    assert not {"EDITOR", "SSH_AUTH_SOCK"} & found.keys()


def test_memory_that_is_not_there_is_told() -> None:
    with pytest.raises(CapabilityError, match=r"exact\.memory"):
        command._memory_folder(1 << 60)


@for_each("folder", OWN)
def test_a_working_directory_that_the_guest_has_not_is_refused(
    folder: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()
    monkeypatch.setattr(Path, "cwd", lambda: Path(folder, "work"))
    with pytest.raises(CapabilityError, match=f"{folder}/work: the working directory of an .* below {folder}, of"):
        command.exact_command(kernel.require(), Guest(1, 200, 1 << 20), tmp_path, ["true"], {})


def test_a_guest_that_cannot_begin_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel's log has what it prints. It is this process that would turn the machine off."""
    ends: list[int] = []
    monkeypatch.setattr(guest_init.ctypes, "CDLL", lambda name: SimpleNamespace(reboot=ends.append))
    monkeypatch.setattr(guest_init.os, "sync", lambda: None)
    monkeypatch.setattr(sys, "argv", ["guest_init.py", "/no/such/job"])
    guest_init.main()
    assert "No such file or directory: '/no/such/job'" in capsys.readouterr().err
    assert ends == [guest_init._POWER_OFF]


def test_a_path_with_spaces_is_one_word_for_the_kernel(cache: Path, tmp_path: Path) -> None:
    installed()
    guest, folder = Guest(1, 200, 1 << 20), tmp_path / "a run"
    folder.mkdir()
    words, _ = command.exact_command(kernel.require(), guest, folder, ["true"], {})
    assert words[-1] == f'"{folder / command.JOB}"'
    (quoted := tmp_path / 'a "run"').mkdir()
    with pytest.raises(CapabilityError, match="without quotation marks"):
        command.exact_command(kernel.require(), guest, quoted, ["true"], {})
