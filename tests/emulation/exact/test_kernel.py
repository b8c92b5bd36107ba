"""The kernel of exact runs without building it: refusals with their cure, its identity, the guest's arguments."""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from emulation.exact import command, kernel
from emulation.exact.command import Guest
from emulation.exact.guest_init import OWN
from testbed.cli.main import main
from testbed.errors import CapabilityError
from testbed.process_id import start_ticks
from testbed.processes.child import Child
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


def test_what_an_interrupted_build_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make's own children would go on for minutes, in a folder that is being removed."""
    begun = tmp_path / "begun"

    def interrupted(child: Child, limit_s: float | None = None) -> int:
        while not begun.exists() or not begun.read_text().endswith("\n"):
            time.sleep(0.005)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernel._run(("sh", "-c", f"sleep 60 & echo $! > {begun}; wait"), tmp_path, tmp_path / "log")
    child, end_s = int(begun.read_text()), time.monotonic() + 240
    while start_ticks(child) is not None:
        assert time.monotonic() < end_s, "it still runs"
        time.sleep(0.005)


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
    with pytest.raises(CapabilityError, match=f"{folder}/work: the working directory of an .* below {folder}, as"):
        command.exact_command(kernel.require(), Guest(1, 200, 1 << 20), tmp_path, ["true"], {})
